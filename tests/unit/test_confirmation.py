import asyncio
import threading

import pytest

from mauve.access.confirmation import KeyConfirmation, confirm_reader
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import KeyKind, Scope
from mauve.core.problems import Code, Problem
from mauve.stores import StoreUnavailableError
from mauve.stores.edge import PublishedKey, PublishedSecret, PublishedToken
from support.service import PATIENCE_S


def a_key(key_id):
    return PublishedKey(key_id, 1, b"", KeyKind.SERVER, Environment.LIVE, "proj", "app", "org", revoked=False)


def a_secret(version):
    return PublishedSecret("proj", Provider.BILLER_A, version, Environment.LIVE, "app", "org", b"")


class CatalogInMemory:
    """Live credentials that a test revokes; each look-up can be held."""

    def __init__(self, *live):
        self.live = set(live)
        self.look_ups = []
        self.is_down = False
        self.goes_on = threading.Event()
        self.goes_on.set()

    def live_keys(self, key_ids):
        found = frozenset(self.live & set(key_ids))
        self.look_ups.append(set(key_ids))
        assert self.goes_on.wait(PATIENCE_S)
        if self.is_down:
            raise StoreUnavailableError("down")
        return found

    def is_live_token(self, lookup_id):
        return lookup_id in self.live

    def is_live_secret(self, public_id, provider, version):
        assert self.goes_on.wait(PATIENCE_S)
        if self.is_down:
            raise StoreUnavailableError("down")
        return (public_id, provider, version) in self.live


def outcomes(confirmations):
    return [getattr(each, "code", each) for each in confirmations]


def test_a_revoked_key_is_refused_and_a_live_one_is_not():
    async def run():
        confirmation = KeyConfirmation(CatalogInMemory("live"))
        found = await asyncio.gather(
            *(confirmation.confirm(a_key(key_id)) for key_id in ("live", "revoked", "live")), return_exceptions=True
        )
        confirmation.close()
        return outcomes(found)

    assert asyncio.run(run()) == [None, Code.UNAUTHORIZED, None]


def test_keys_that_arrive_during_a_look_up_share_the_next_which_sees_later_revocations():
    async def run():
        catalog = CatalogInMemory("a", "b", "c")
        catalog.goes_on.clear()
        confirmation = KeyConfirmation(catalog)
        first = asyncio.create_task(confirmation.confirm(a_key("a")))
        while not catalog.look_ups:  # noqa: ASYNC110 - it is made in a thread
            await asyncio.sleep(0)
        catalog.live.discard("a")
        later = [asyncio.create_task(confirmation.confirm(a_key(key_id))) for key_id in "abcb"]
        await asyncio.sleep(0)
        catalog.goes_on.set()
        found = await asyncio.gather(first, *later, return_exceptions=True)
        confirmation.close()
        return outcomes(found), catalog.look_ups

    found, look_ups = asyncio.run(run())
    assert found == [None, Code.UNAUTHORIZED, None, None, None]
    assert look_ups == [{"a"}, {"a", "b", "c"}]


def test_a_catalog_that_fails_fails_each_caller_and_the_next_look_up_may_succeed():
    async def run():
        catalog = CatalogInMemory("a", "b")
        confirmation = KeyConfirmation(catalog)
        catalog.is_down = True
        failed = await asyncio.gather(*(confirmation.confirm(a_key(each)) for each in "ab"), return_exceptions=True)
        catalog.is_down = False
        await confirmation.confirm(a_key("a"))
        confirmation.close()
        return failed

    failed = asyncio.run(run())
    assert [type(each) for each in failed] == [StoreUnavailableError] * 2
    assert failed[0] is not failed[1]


def test_a_catalog_that_does_not_answer_is_given_up():
    async def run():
        catalog = CatalogInMemory("a")
        catalog.goes_on.clear()
        confirmation = KeyConfirmation(catalog, wait_s_max=0.01)
        with pytest.raises(StoreUnavailableError, match="in time"):
            await confirmation.confirm(a_key("a"))
        catalog.goes_on.set()
        confirmation.close()

    asyncio.run(run())


def test_a_webhook_secret_is_confirmed_by_its_version():
    async def run():
        catalog = CatalogInMemory(("proj", Provider.BILLER_A, 2))
        confirmation = KeyConfirmation(catalog, wait_s_max=PATIENCE_S)
        found = [await outcome(confirmation.confirm_secret(a_secret(version))) for version in (1, 2)]
        catalog.is_down = True
        found.append(await outcome(confirmation.confirm_secret(a_secret(2))))
        confirmation.close()
        return found

    async def outcome(confirming):
        (found,) = await asyncio.gather(confirming, return_exceptions=True)
        return getattr(found, "code", None if found is None else type(found))

    assert asyncio.run(run()) == [Code.UNAUTHORIZED, None, StoreUnavailableError]


def test_a_catalog_that_does_not_answer_for_a_secret_is_given_up():
    async def run():
        catalog = CatalogInMemory()
        catalog.goes_on.clear()
        confirmation = KeyConfirmation(catalog, wait_s_max=0.01)
        with pytest.raises(StoreUnavailableError, match="in time"):
            await confirmation.confirm_secret(a_secret(1))
        catalog.goes_on.set()
        confirmation.close()

    asyncio.run(run())


def test_readers_are_confirmed_by_key_or_token():
    catalog = CatalogInMemory("key", "token")
    token = PublishedToken("token", 1, b"", "org", Environment.LIVE, frozenset({Scope.METRICS_READ}), revoked=False)
    confirm_reader(catalog, a_key("key"))
    confirm_reader(catalog, token)
    catalog.live.clear()
    for reader in (a_key("key"), token):
        with pytest.raises(Problem) as refused:
            confirm_reader(catalog, reader)
        assert refused.value.code is Code.UNAUTHORIZED
