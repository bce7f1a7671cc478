import math

import pytest

from mauve.access import keys, tokens
from mauve.access.keyring import EXTRA_REFRESHES_PER_S, FRESH_S, Keyring
from mauve.core.app import Environment
from mauve.core.credential import KeyKind, Scope
from mauve.core.ids import SystemRandomness, new_id
from mauve.stores import StoreUnavailableError
from mauve.stores.published import Changes, PublishedKey, PublishedProject, PublishedToken
from support.clocks import Ticks


class EdgeInMemory:
    """An edge that a test can take down."""

    def __init__(self):
        self.records = []
        self.is_down = False
        self.reads = 0
        self.stale_s = 0.0

    def changes_since(self, revision):
        self.reads += 1
        if self.is_down:
            raise StoreUnavailableError("down")
        return Changes(self.records[revision:], len(self.records))

    def staleness_s(self, revision):
        return self.stale_s if revision >= len(self.records) else math.inf

    def close(self):
        pass


@pytest.fixture
def edge():
    return EdgeInMemory()


@pytest.fixture
def minted():
    return keys.mint(KeyKind.SERVER, Environment.LIVE, SystemRandomness())


def published(minted, *, revoked=False):
    return PublishedKey(
        "key_1", 1, minted.digest, KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=revoked
    )


def test_a_key_works_from_the_moment_it_is_published(edge, minted):
    ring = Keyring(edge)
    ring.refresh()
    edge.records.append(published(minted))
    assert ring.key_for(minted.key.reveal()).key_id == "key_1"


def test_it_is_fresh_only_with_all_that_the_edge_has(edge, minted):
    """The edge may have been behind for seconds: what it has now must not wait for the next refresh."""
    edge.records.append(published(minted))
    ring = Keyring(edge)
    ring.refresh()
    assert ring.is_fresh
    assert ring.key_for(minted.key.reveal())
    edge.records.append(published(minted, revoked=True))
    assert ring.is_fresh
    assert ring.key_for(minted.key.reveal()) is None
    edge.stale_s = FRESH_S + 0.1
    assert not ring.is_fresh


def test_it_is_not_fresh_if_it_cannot_take_what_the_edge_has(edge, minted):
    ring = Keyring(edge, ticks=lambda: 0.0)
    ring.refresh()
    for _ in range(EXTRA_REFRESHES_PER_S):
        edge.records.append(published(minted))
        assert ring.is_fresh
    edge.records.append(published(minted, revoked=True))
    assert not ring.is_fresh, "there are too many changes"
    ring.refresh()
    assert ring.is_fresh
    edge.records.append(published(minted))
    edge.is_down = True
    assert not ring.is_fresh


def test_a_known_key_is_answered_from_memory(edge, minted):
    edge.records.append(published(minted))
    ring = Keyring(edge)
    ring.refresh()
    reads = edge.reads
    assert ring.key_for(minted.key.reveal())
    assert edge.reads == reads


def check_that_a_revoked_key_is_refused_after_the_next_refresh(edge, minted):
    edge.records.append(published(minted))
    ring = Keyring(edge)
    ring.refresh()
    assert ring.key_for(minted.key.reveal())
    edge.records.append(published(minted, revoked=True))
    ring.refresh()
    assert ring.key_for(minted.key.reveal()) is None


def test_a_revoked_key_is_refused_after_the_next_refresh(edge, minted):
    check_that_a_revoked_key_is_refused_after_the_next_refresh(edge, minted)


class TestPlantedBugs:
    """The check above must find each of these bugs."""

    def test_a_revoked_key_left_in_the_cache(self, edge, minted, monkeypatch):
        kept = {}
        monkeypatch.setattr(Keyring, "_key_cache", property(lambda self: kept, lambda self, value: None), raising=False)
        with pytest.raises(AssertionError):
            check_that_a_revoked_key_is_refused_after_the_next_refresh(edge, minted)

    def test_a_revocation_that_is_ignored(self, edge, minted, monkeypatch):
        apply = Keyring._apply  # noqa: SLF001 - the bug is planted inside
        monkeypatch.setattr(Keyring, "_apply", lambda self, record: record.revoked or apply(self, record))
        with pytest.raises(AssertionError):
            check_that_a_revoked_key_is_refused_after_the_next_refresh(edge, minted)


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


def test_a_malformed_credential_does_not_reach_the_edge(edge):
    ring = Keyring(edge)
    for credential in (None, "", "x" * 10_000, "sk_live_" + "0" * 40):
        assert ring.key_for(credential) is None
    assert edge.reads == 0


@pytest.fixture
def minted_token():
    return tokens.mint(SystemRandomness())


def published_token(minted_token, version=1, environment=Environment.LIVE, *, revoked=False):
    return PublishedToken(
        minted_token.lookup_id,
        version,
        minted_token.digest,
        "org_1",
        environment,
        frozenset({Scope.METRICS_READ}),
        revoked=revoked,
    )


def a_project():
    return PublishedProject(new_id("proj", SystemRandomness()), 1, "app_1", "org_1", Environment.LIVE)


def unknown_tokens(count):
    return [tokens.mint(SystemRandomness()).token.reveal() for _ in range(count)]


class TestTokens:
    def test_a_token_works_from_the_moment_it_is_published(self, edge, minted_token):
        ring = Keyring(edge)
        ring.refresh()
        assert ring.token_for(minted_token.token.reveal()) is None
        edge.records.append(published_token(minted_token))
        token = ring.token_for(minted_token.token.reveal())
        assert (token.org_id, token.environment, token.scopes) == ("org_1", Environment.LIVE, {Scope.METRICS_READ})

    def test_a_known_token_is_answered_from_memory(self, edge, minted_token):
        edge.records.append(published_token(minted_token))
        ring = Keyring(edge)
        ring.refresh()
        reads = edge.reads
        first = ring.token_for(minted_token.token.reveal())
        assert ring.token_for(minted_token.token.reveal()) is first is not None
        assert edge.reads == reads

    def test_a_revoked_token_is_refused_after_the_next_refresh(self, edge, minted_token):
        edge.records.append(published_token(minted_token))
        ring = Keyring(edge)
        assert ring.token_for(minted_token.token.reveal())
        edge.records.append(published_token(minted_token, version=2, revoked=True))
        ring.refresh()
        assert ring.token_for(minted_token.token.reveal()) is None

    def test_a_wrong_secret_is_refused_and_costs_what_an_unknown_token_does(self, edge, minted_token):
        edge.records.append(published_token(minted_token))
        ring = Keyring(edge)
        ring.refresh()
        text = minted_token.token.reveal()
        reads = []
        for credential in (text[:-1] + ("0" if text[-1] != "0" else "1"), *unknown_tokens(1)):
            before = edge.reads
            assert ring.token_for(credential) is None
            reads.append(edge.reads - before)
        assert reads == [1, 1]

    def test_a_token_belongs_to_the_environment_of_its_prefix(self, edge, minted_token):
        edge.records.append(published_token(minted_token))
        ring = Keyring(edge)
        live = minted_token.token.reveal()
        assert ring.token_for(live.replace("ctl_live_", "ctl_test_")) is None
        assert ring.token_for(live)
        edge.records.append(published_token(minted_token, version=2, environment=Environment.TEST))
        ring.refresh()
        assert ring.token_for(live) is None
        assert ring.token_for(live.replace("ctl_live_", "ctl_test_")).environment is Environment.TEST

    def test_a_malformed_token_does_not_reach_the_edge(self, edge, minted, minted_token):
        ring = Keyring(edge)
        text = minted_token.token.reveal()
        for credential in (None, "", text[:-1], text + "0", text.upper(), f"{text}\n", minted.key.reveal()):
            assert ring.token_for(credential) is None
        assert ring.key_for(text) is None
        assert edge.reads == 0

    def test_the_copy_outlives_the_edge(self, edge, minted_token):
        edge.records.append(published_token(minted_token))
        ring = Keyring(edge)
        ring.refresh()
        edge.is_down = True
        assert ring.token_for(minted_token.token.reveal())


class TestProjects:
    def test_a_project_is_found_from_the_moment_it_is_published(self, edge):
        ring = Keyring(edge)
        ring.refresh()
        project = a_project()
        assert ring.project(project.public_id) is None
        edge.records.append(project)
        assert ring.project(project.public_id) == project

    def test_a_malformed_id_does_not_reach_the_edge(self, edge):
        ring = Keyring(edge)
        for public_id in ("", "proj_", "app_00000000000000000000", "proj_" + "é" * 20, "x" * 10_000):
            assert ring.project(public_id) is None
        assert edge.reads == 0


class TestFloods:
    def test_a_flood_of_unknown_tokens_does_not_cost_a_refresh_each(self, edge):
        ring = Keyring(edge, Ticks())
        for credential in unknown_tokens(10 * EXTRA_REFRESHES_PER_S):
            assert ring.token_for(credential) is None
        assert edge.reads == EXTRA_REFRESHES_PER_S

    def test_a_flood_of_unknown_keys_and_projects_does_not_cost_a_refresh_each(self, edge):
        ring = Keyring(edge, Ticks())
        for _ in range(5 * EXTRA_REFRESHES_PER_S):
            assert ring.key_for(keys.mint(KeyKind.SERVER, Environment.LIVE, SystemRandomness()).key.reveal()) is None
            assert ring.project(a_project().public_id) is None
        assert edge.reads == EXTRA_REFRESHES_PER_S

    def test_after_a_flood_a_new_token_is_found_by_the_regular_refresh(self, edge, minted_token):
        ring = Keyring(edge, Ticks())
        for credential in unknown_tokens(2 * EXTRA_REFRESHES_PER_S):
            ring.token_for(credential)
        edge.records.append(published_token(minted_token))
        assert ring.token_for(minted_token.token.reveal()) is None
        ring.refresh()
        assert ring.token_for(minted_token.token.reveal())

    def test_after_the_flood_an_unknown_token_triggers_a_refresh_again(self, edge):
        ticks = Ticks()
        ring = Keyring(edge, ticks)
        for credential in unknown_tokens(2 * EXTRA_REFRESHES_PER_S):
            ring.token_for(credential)
        reads = edge.reads
        ticks.now_s += 1
        ring.token_for(unknown_tokens(1)[0])
        assert edge.reads == reads + 1


@pytest.mark.parametrize("kind", ["key", "token"])
def test_a_revocation_during_a_lookup_is_not_lost(edge, minted, minted_token, kind):
    """The lookup has found the live record; before it is cached, a refresh applies the revocation."""
    live, revoked, credential = {
        "key": (published(minted), published(minted, revoked=True), minted.key.reveal()),
        "token": (
            published_token(minted_token),
            published_token(minted_token, version=2, revoked=True),
            minted_token.token.reveal(),
        ),
    }[kind]
    edge.records.append(live)
    ring = Keyring(edge)
    ring.refresh()
    edge.records.append(revoked)
    ask = {"key": ring.key_for, "token": ring.token_for}[kind]
    table = {"key": "_keys", "token": "_tokens"}[kind]

    class Interrupted(dict):
        def get(self, name):
            found = super().get(name)
            if edge.records[-1] is revoked and found is live:
                ring.refresh()
            return found

    setattr(ring, table, Interrupted(getattr(ring, table)))
    ask(credential)  # It began before the revocation: either answer is right.
    assert ask(credential) is None
