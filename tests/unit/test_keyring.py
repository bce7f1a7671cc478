import pytest

from mauve.access import keys
from mauve.access.keyring import Keyring
from mauve.core.facts import KeyKind, Plane
from mauve.core.ids import SystemRandomness
from mauve.stores.edge import Changes, PublishedKey
from mauve.stores.unavailable import StoreUnavailableError


class EdgeInMemory:
    """An edge whose owner can pull the plug."""

    def __init__(self):
        self.records = []
        self.is_down = False
        self.looks = 0

    def changes_since(self, revision):
        self.looks += 1
        if self.is_down:
            raise StoreUnavailableError("down")
        return Changes(self.records[revision:], len(self.records))

    def close(self):
        pass


@pytest.fixture
def edge():
    return EdgeInMemory()


@pytest.fixture
def minted():
    return keys.mint(KeyKind.SERVER, Plane.LIVE, SystemRandomness())


def published(minted, *, revoked=False):
    return PublishedKey(
        "key_1", 1, minted.digest, KeyKind.SERVER, Plane.LIVE, "proj_1", "app_1", "org_1", revoked=revoked
    )


def test_a_key_works_from_the_moment_it_is_published(edge, minted):
    ring = Keyring(edge)
    ring.refresh()
    edge.records.append(published(minted))
    assert ring.key_for(minted.key.reveal()).key_id == "key_1"


def test_a_known_key_is_answered_from_memory(edge, minted):
    edge.records.append(published(minted))
    ring = Keyring(edge)
    ring.refresh()
    looks = edge.looks
    assert ring.key_for(minted.key.reveal())
    assert edge.looks == looks


def test_a_revoked_key_is_refused_after_the_next_refresh(edge, minted):
    edge.records.append(published(minted))
    ring = Keyring(edge)
    ring.refresh()
    edge.records.append(published(minted, revoked=True))
    ring.refresh()
    assert ring.key_for(minted.key.reveal()) is None


def test_the_copy_outlives_the_edge(edge, minted):
    edge.records.append(published(minted))
    ring = Keyring(edge)
    ring.refresh()
    assert ring.is_current
    edge.is_down = True
    ring.refresh()
    assert not ring.is_current
    assert ring.key_for(minted.key.reveal()) is not None
    edge.is_down = False
    ring.refresh()
    assert ring.is_current


def test_a_malformed_credential_does_not_bother_the_edge(edge):
    ring = Keyring(edge)
    for credential in (None, "", "x" * 10_000, "sk_live_" + "0" * 40):
        assert ring.key_for(credential) is None
    assert edge.looks == 0
