"""Entries for catalogs: organizations, apps and keys to start with."""

import threading
from collections.abc import Callable
from typing import Any

from mauve.core.app import AppType, Environment, Ownership
from mauve.core.credential import KeyKind
from mauve.core.ids import SystemRandomness, new_id
from mauve.core.organization import Limits, Organization, Standing
from mauve.stores.catalog import NewApp, NewKey
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.published import PublishedRecord

NOW = 1_800_000_000_000
RANDOM = SystemRandomness()


def in_parallel(work: Callable[[], object]) -> None:
    """Run the work in four threads at once."""
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def an_id(prefix: str) -> str:
    return new_id(prefix, RANDOM)


def an_organization(**fields: Any) -> Organization:
    known: dict[str, Any] = {
        "org_id": an_id("org"),
        "name": "Acme",
        "standing": Standing.LIVE,
        "grace_ends_at": None,
        "limits": Limits(),
        "created_at": NOW,
    }
    return Organization(**(known | fields))


def an_app(org_id: str, **fields: Any) -> NewApp:
    known: dict[str, Any] = {
        "app_id": an_id("app"),
        "org_id": org_id,
        "public_id": an_id("proj"),
        "name": "An app",
        "ownership": Ownership.MINE,
        "type": AppType.SAAS,
        "created_at": NOW,
    }
    return NewApp(**(known | fields))


def a_key(**fields: Any) -> NewKey:
    known: dict[str, Any] = {
        "key_id": an_id("key"),
        "kind": KeyKind.SERVER,
        "environment": Environment.LIVE,
        "digest": RANDOM.base62(32).encode(),
        "masked": "sk_live_abcd…wxyz",
        "created_at": NOW,
    }
    return NewKey(**(known | fields))


def let_pass(_tally: object) -> None:
    """A check that allows every change."""


class Follower:
    """Reads what was published since it was last asked, as every process does."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._revision = 0

    def news(self) -> list[PublishedRecord]:
        records, self._revision = self._catalog.published.changes_since(self._revision)
        return records
