"""Quotas of an organization. Each check runs inside the transaction that adds something."""

from collections.abc import Sequence

from mauve.control.bodies import invalid_body
from mauve.core.credential import Scope
from mauve.core.organization import IN_ALL, Quotas
from mauve.core.problems import Code, Problem
from mauve.stores.catalog import Member, Tally


def check_new_app(quotas: Quotas, tally: Tally) -> None:
    """Refuse one app too many. Each comes with a key, which counts too."""
    _check_minter(tally, Scope.APPS_WRITE)
    if tally.apps >= quotas.apps:
        raise _too_many(f"this organization has {tally.apps} apps", "use one of them", "APPS_PER_ORGANIZATION")
    _check_keys_of_organization(quotas, tally)


def check_new_key(quotas: Quotas, tally: Tally) -> None:
    _check_minter(tally, Scope.KEYS_WRITE)
    if tally.app_keys >= quotas.keys_per_app:
        raise _too_many(f"this app has {tally.app_keys} keys that work", "revoke one first", "KEYS_PER_APP")
    if tally.app_keys_in_all >= quotas.keys_per_app * IN_ALL:
        had = f"this app has {tally.app_keys_in_all} keys with the revoked ones"
        raise _too_many(had, "use another app", "KEYS_PER_APP")
    _check_keys_of_organization(quotas, tally)


def check_new_token(quotas: Quotas, tally: Tally, scopes: frozenset[Scope]) -> None:
    _check_minter(tally, *scopes)
    if tally.tokens >= quotas.tokens:
        has = f"this organization has {tally.tokens} control tokens that work"
        raise _too_many(has, "revoke one first", "TOKENS_PER_ORGANIZATION")
    if tally.tokens_in_all >= quotas.tokens * IN_ALL:
        had = f"this organization has {tally.tokens_in_all} control tokens with the revoked ones"
        raise _too_many(had, "use one that works", "TOKENS_PER_ORGANIZATION")


def check_new_member(quotas: Quotas, members: Sequence[Member]) -> None:
    if len(members) >= quotas.members:
        has = f"this organization has {len(members)} members with the invited ones"
        raise _too_many(has, "remove a member first", "MEMBERS_PER_ORGANIZATION")


def _check_keys_of_organization(quotas: Quotas, tally: Tally) -> None:
    if tally.keys >= quotas.keys:
        has = f"the apps of this organization have {tally.keys} keys that work"
        raise _too_many(has, "revoke one first", "KEYS_PER_ORGANIZATION")
    if tally.keys_in_all >= quotas.keys * IN_ALL:
        had = f"the apps of this organization have {tally.keys_in_all} keys with the revoked ones"
        raise _too_many(had, "use one that works", "KEYS_PER_ORGANIZATION")


def _check_minter(tally: Tally, *needed: Scope) -> None:
    """Refuse a minter that was removed, demoted or revoked since the request began."""
    if not tally.minter_scopes.issuperset(needed):
        raise Problem(Code.INSUFFICIENT_SCOPE, "the right to do this was taken away a moment ago: ask an owner")


def _too_many(has: str, what_to_do: str, setting: str) -> Problem:
    return invalid_body(f"{has}, the most that is allowed: {what_to_do}, or have the operator raise MAUVE_{setting}")
