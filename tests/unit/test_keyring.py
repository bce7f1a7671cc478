"""The records that each process keeps in memory.

Proves: revocation.
"""

import asyncio
import threading

import pytest

from mauve.access import keys, tokens
from mauve.access.keyring import CONFIRM_S_MAX, CURRENT_S, EXTRA_REFRESHES_PER_S, RELOAD_AFTER_S, Keyring
from mauve.core.app import Environment
from mauve.core.credential import KeyKind, Scope
from mauve.core.ids import SystemRandomness, new_id
from mauve.core.problems import Problem
from mauve.stores import StoreUnavailableError
from mauve.stores.published import Changes, PublishedKey, PublishedProject, PublishedToken
from support.clocks import Ticks


class CatalogInMemory:
    """A catalog that a test can take down."""

    def __init__(self):
        self.records = []
        self.is_down = False
        self.reads = 0

    def __call__(self, revision):
        self.reads += 1
        if self.is_down:
            raise StoreUnavailableError("down")
        return Changes(self.records[revision:], len(self.records))


@pytest.fixture
def catalog():
    return CatalogInMemory()


@pytest.fixture
def minted():
    return keys.mint(KeyKind.SERVER, Environment.LIVE, SystemRandomness())


def published(minted, *, revoked=False):
    return PublishedKey(
        "key_1",
        keys.digest_of(minted.reveal()),
        KeyKind.SERVER,
        Environment.LIVE,
        "proj_1",
        "app_1",
        "org_1",
        revoked=revoked,
    )


def test_a_key_works_from_the_moment_it_is_published(catalog, minted):
    ring = Keyring(catalog)
    ring.refresh()
    catalog.records.append(published(minted))
    assert ring.key_for(minted.reveal()).key_id == "key_1"


def test_a_known_key_is_answered_from_memory(catalog, minted):
    catalog.records.append(published(minted))
    ring = Keyring(catalog)
    ring.refresh()
    reads = catalog.reads
    assert ring.key_for(minted.reveal())
    assert catalog.reads == reads


def check_that_a_revoked_key_is_refused_after_the_next_refresh(catalog, minted, new_keyring=Keyring):
    catalog.records.append(published(minted))
    ring = new_keyring(catalog)
    ring.refresh()
    assert ring.key_for(minted.reveal())
    catalog.records.append(published(minted, revoked=True))
    ring.refresh()
    assert ring.key_for(minted.reveal()) is None


def test_a_revoked_key_is_refused_after_the_next_refresh(catalog, minted):
    check_that_a_revoked_key_is_refused_after_the_next_refresh(catalog, minted)


class TestPlantedBugs:
    """The check above must find each of these bugs."""

    def test_a_revoked_key_left_in_the_cache(self, catalog, minted):
        kept = {}

        class StaleKeyring(Keyring):
            def key_for(self, credential):
                kept[credential] = kept.get(credential) or super().key_for(credential)
                return kept[credential]

        with pytest.raises(AssertionError):
            check_that_a_revoked_key_is_refused_after_the_next_refresh(catalog, minted, StaleKeyring)

    def test_a_revocation_that_is_not_read(self, catalog, minted):
        def without_revocations(revision):
            changes = catalog(revision)
            return changes._replace(records=[record for record in changes.records if not record.revoked])

        without_revocations.records = catalog.records
        with pytest.raises(AssertionError):
            check_that_a_revoked_key_is_refused_after_the_next_refresh(without_revocations, minted)


def test_the_records_outlive_the_catalog(catalog, minted):
    catalog.records.append(published(minted))
    ring = Keyring(catalog)
    ring.refresh()
    assert ring.is_current
    catalog.is_down = True
    ring.refresh()
    assert not ring.is_current
    assert ring.key_for(minted.reveal()) is not None
    catalog.is_down = False
    ring.refresh()
    assert ring.is_current


def test_a_malformed_credential_does_not_reach_the_catalog(catalog):
    ring = Keyring(catalog)
    for credential in (None, "", "x" * 10_000, "sk_live_" + "0" * 40):
        assert ring.key_for(credential) is None
    assert catalog.reads == 0


@pytest.fixture
def minted_token():
    return tokens.mint(SystemRandomness())


def published_token(minted_token, environment=Environment.LIVE, *, revoked=False):
    return PublishedToken(
        minted_token[1].lookup_id,
        minted_token[1].digest,
        "org_1",
        environment,
        frozenset({Scope.METRICS_READ}),
        revoked=revoked,
    )


def a_project():
    return PublishedProject(new_id("proj", SystemRandomness()), "app_1", "org_1", Environment.LIVE)


def unknown_tokens(count):
    return [tokens.mint(SystemRandomness())[0].reveal() for _ in range(count)]


class TestTokens:
    def test_a_token_works_from_the_moment_it_is_published(self, catalog, minted_token):
        ring = Keyring(catalog)
        ring.refresh()
        assert ring.token_for(minted_token[0].reveal()) is None
        catalog.records.append(published_token(minted_token))
        token = ring.token_for(minted_token[0].reveal())
        assert (token.org_id, token.environment, token.scopes) == ("org_1", Environment.LIVE, {Scope.METRICS_READ})

    def test_a_known_token_is_answered_from_memory(self, catalog, minted_token):
        catalog.records.append(published_token(minted_token))
        ring = Keyring(catalog)
        ring.refresh()
        reads = catalog.reads
        first = ring.token_for(minted_token[0].reveal())
        assert ring.token_for(minted_token[0].reveal()) is first is not None
        assert catalog.reads == reads

    def test_a_revoked_token_is_refused_after_the_next_refresh(self, catalog, minted_token):
        catalog.records.append(published_token(minted_token))
        ring = Keyring(catalog)
        assert ring.token_for(minted_token[0].reveal())
        catalog.records.append(published_token(minted_token, revoked=True))
        ring.refresh()
        assert ring.token_for(minted_token[0].reveal()) is None

    def test_a_wrong_secret_is_refused_and_costs_what_an_unknown_token_does(self, catalog, minted_token):
        catalog.records.append(published_token(minted_token))
        ring = Keyring(catalog)
        ring.refresh()
        text = minted_token[0].reveal()
        reads = []
        for credential in (text[:-1] + ("0" if text[-1] != "0" else "1"), *unknown_tokens(1)):
            before = catalog.reads
            assert ring.token_for(credential) is None
            reads.append(catalog.reads - before)
        assert reads == [1, 1]

    def test_a_token_belongs_to_the_environment_of_its_prefix(self, catalog, minted_token):
        catalog.records.append(published_token(minted_token))
        ring = Keyring(catalog)
        live = minted_token[0].reveal()
        assert ring.token_for(live.replace("ctl_live_", "ctl_test_")) is None
        assert ring.token_for(live)
        catalog.records.append(published_token(minted_token, environment=Environment.TEST))
        ring.refresh()
        assert ring.token_for(live) is None
        assert ring.token_for(live.replace("ctl_live_", "ctl_test_")).environment is Environment.TEST

    def test_a_malformed_token_does_not_reach_the_catalog(self, catalog, minted, minted_token):
        ring = Keyring(catalog)
        text = minted_token[0].reveal()
        for credential in (None, "", text[:-1], text + "0", text.upper(), f"{text}\n", minted.reveal()):
            assert ring.token_for(credential) is None
        assert ring.key_for(text) is None
        assert catalog.reads == 0

    def test_the_records_outlive_the_catalog(self, catalog, minted_token):
        catalog.records.append(published_token(minted_token))
        ring = Keyring(catalog)
        ring.refresh()
        catalog.is_down = True
        assert ring.token_for(minted_token[0].reveal())


class TestProjects:
    def test_a_project_is_found_from_the_moment_it_is_published(self, catalog):
        ring = Keyring(catalog)
        ring.refresh()
        project = a_project()
        assert ring.project(project.public_id) is None
        catalog.records.append(project)
        assert ring.project(project.public_id) == project

    def test_a_malformed_id_does_not_reach_the_catalog(self, catalog):
        ring = Keyring(catalog)
        for public_id in ("", "proj_", "app_00000000000000000000", "proj_" + "é" * 20, "x" * 10_000):
            assert ring.project(public_id) is None
        assert catalog.reads == 0


class TestFloods:
    def test_a_flood_of_unknown_tokens_does_not_cost_a_refresh_each(self, catalog):
        ring = Keyring(catalog, ticks=Ticks())
        for credential in unknown_tokens(10 * EXTRA_REFRESHES_PER_S):
            assert ring.token_for(credential) is None
        assert catalog.reads == EXTRA_REFRESHES_PER_S

    def test_a_flood_of_unknown_keys_and_projects_does_not_cost_a_refresh_each(self, catalog):
        ring = Keyring(catalog, ticks=Ticks())
        for _ in range(5 * EXTRA_REFRESHES_PER_S):
            assert ring.key_for(keys.mint(KeyKind.SERVER, Environment.LIVE, SystemRandomness()).reveal()) is None
            assert ring.project(a_project().public_id) is None
        assert catalog.reads == EXTRA_REFRESHES_PER_S

    def test_after_a_flood_a_new_token_is_found_by_the_regular_refresh(self, catalog, minted_token):
        ring = Keyring(catalog, ticks=Ticks())
        for credential in unknown_tokens(2 * EXTRA_REFRESHES_PER_S):
            ring.token_for(credential)
        catalog.records.append(published_token(minted_token))
        assert ring.token_for(minted_token[0].reveal()) is None
        ring.refresh()
        assert ring.token_for(minted_token[0].reveal())

    def test_after_the_flood_an_unknown_token_triggers_a_refresh_again(self, catalog):
        ticks = Ticks()
        ring = Keyring(catalog, ticks=ticks)
        for credential in unknown_tokens(2 * EXTRA_REFRESHES_PER_S):
            ring.token_for(credential)
        reads = catalog.reads
        ticks.now_s += 1
        ring.token_for(unknown_tokens(1)[0])
        assert catalog.reads == reads + 1


class TestAge:
    """Where machines share a catalog, money and reads need records that were read within the last second."""

    @pytest.fixture
    def ticks(self):
        return Ticks()

    @pytest.fixture
    def ring(self, catalog, minted, ticks):
        catalog.records.append(published(minted))
        ring = Keyring(catalog, age_s_max=CURRENT_S, ticks=ticks)
        ring.refresh()
        return ring

    def test_records_are_recent_for_a_second(self, ring, catalog, ticks):
        ticks.now_s += CURRENT_S
        assert ring.is_recent
        ticks.now_s += 0.1
        assert not ring.is_recent
        catalog.is_down = True
        ring.refresh()
        assert not ring.is_recent
        catalog.is_down = False
        ring.refresh()
        assert ring.is_recent

    def test_on_one_machine_they_always_are(self, catalog, ticks):
        ring = Keyring(catalog, ticks=ticks)
        ring.refresh()
        catalog.is_down = True
        ticks.now_s += RELOAD_AFTER_S
        assert ring.is_recent

    def test_a_live_credential_is_confirmed(self, ring, catalog, minted, minted_token):
        catalog.records += [token := published_token(minted_token)]
        ring.refresh()
        asyncio.run(ring.confirm(ring.key_for(minted.reveal())))
        asyncio.run(ring.confirm(token))

    def test_a_revoked_credential_is_refused(self, ring, catalog, minted, minted_token):
        key, token = ring.key_for(minted.reveal()), published_token(minted_token)
        catalog.records += [published(minted, revoked=True), published_token(minted_token, revoked=True)]
        ring.refresh()
        for credential in (key, token):
            with pytest.raises(Problem):
                asyncio.run(ring.confirm(credential))

    def test_nothing_is_confirmed_while_the_catalog_is_down(self, ring, catalog, minted, ticks):
        key = ring.key_for(minted.reveal())
        catalog.is_down = True
        ticks.now_s += CURRENT_S + 0.1

        async def confirm():
            confirming = asyncio.create_task(ring.confirm(key))
            await asyncio.sleep(0)
            ticks.now_s += CONFIRM_S_MAX
            await confirming

        with pytest.raises(StoreUnavailableError):
            asyncio.run(confirm())

    def test_everything_is_read_again_after_a_day_without_a_read(self, ring, catalog, minted, ticks):
        """Records of deleted apps may have been pruned by then, and with them the revocations."""
        ticks.now_s += RELOAD_AFTER_S + 1
        catalog.records[:] = []
        ring.refresh()
        assert ring.key_for(minted.reveal()) is None


class TestBeforeTheFirstRead:
    """A process that has not read the catalog since its start cannot say that something is unknown."""

    def test_unknown_credentials_are_not_refused(self, catalog, minted, minted_token):
        catalog.is_down = True
        ring = Keyring(catalog, is_local=False)
        ring.refresh()
        for ask in (
            lambda: ring.key_for(minted.reveal()),
            lambda: ring.token_for(minted_token[0].reveal()),
            lambda: ring.project(a_project().public_id),
            lambda: ring.secret("proj_1/biller_a"),
        ):
            with pytest.raises(StoreUnavailableError):
                ask()
        assert ring.key_for("malformed") is None
        catalog.is_down = False
        ring.refresh()
        assert ring.key_for(minted.reveal()) is None


def test_an_unexpected_error_makes_the_records_outdated(minted):
    def broken(_revision):
        raise ZeroDivisionError

    ring = Keyring(broken)
    with pytest.raises(ZeroDivisionError):
        ring.refresh()
    assert not ring.is_current


class TestSnapshot:
    """A process that starts while the catalog is down continues with what the last one knew."""

    def follow(self, ring):
        """Poll once, which also writes the snapshot."""
        polled = threading.Semaphore(0)
        go = threading.Semaphore(0)

        def wait(_seconds):
            polled.release()
            go.acquire()

        with ring.following(wait):
            polled.acquire()
            go.release()
            polled.acquire()
            go.release()

    def test_a_process_starts_from_the_snapshot_of_the_last_one(self, catalog, minted, minted_token, tmp_path):
        catalog.records += [published(minted), published_token(minted_token), project := a_project()]
        self.follow(Keyring(catalog, snapshot=tmp_path / "keys.json"))
        catalog.is_down = True
        ring = Keyring(catalog, snapshot=tmp_path / "keys.json")
        ring.refresh()
        assert not ring.is_current
        assert ring.key_for(minted.reveal()) == published(minted)
        assert ring.token_for(minted_token[0].reveal()) == published_token(minted_token)
        assert ring.project(project.public_id) == project
        catalog.is_down = False
        catalog.records.append(published(minted, revoked=True))
        ring.refresh()
        assert ring.key_for(minted.reveal()) is None

    def test_the_first_read_replaces_the_snapshot(self, catalog, minted, tmp_path):
        """A catalog that was restored may lack what the snapshot has."""
        catalog.records.append(published(minted))
        self.follow(Keyring(catalog, snapshot=tmp_path / "keys.json"))
        catalog.is_down = True
        ring = Keyring(catalog, snapshot=tmp_path / "keys.json")
        ring.refresh()
        catalog.is_down = False
        catalog.records[:] = []
        ring.refresh()
        assert ring.key_for(minted.reveal()) is None

    @pytest.mark.parametrize("content", [b"", b"{", b'[1, [{"type": "other"}]]'])
    def test_a_damaged_snapshot_is_ignored(self, catalog, minted, tmp_path, content):
        (tmp_path / "keys.json").write_bytes(content)
        catalog.is_down = True
        ring = Keyring(catalog, snapshot=tmp_path / "keys.json")
        ring.refresh()
        with pytest.raises(StoreUnavailableError):
            ring.key_for(minted.reveal())

    def test_the_snapshot_is_private(self, catalog, minted, tmp_path):
        catalog.records.append(published(minted))
        self.follow(Keyring(catalog, snapshot=tmp_path / "keys.json"))
        assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600

    def test_a_snapshot_that_cannot_be_written_stops_nothing(self, catalog, minted, tmp_path):
        catalog.records.append(published(minted))
        ring = Keyring(catalog, snapshot=tmp_path / "missing" / "keys.json")
        self.follow(ring)
        assert ring.key_for(minted.reveal())


class TestRaces:
    """A lookup has found the live record; before it is cached, a refresh applies the revocation."""

    def test_a_revocation_while_a_token_is_compared_is_not_lost(self, catalog, minted_token, monkeypatch):
        catalog.records.append(published_token(minted_token))
        ring = Keyring(catalog)
        ring.refresh()
        credential = minted_token[0].reveal()

        class Interrupted:
            lookup_id, environment = minted_token[1].lookup_id, Environment.LIVE

            def matches(self, digest):
                catalog.records.append(published_token(minted_token, revoked=True))
                ring.refresh()
                return digest == minted_token[1].digest

        with monkeypatch.context() as patched:
            patched.setattr("mauve.access.keyring.presented_token", lambda _credential: Interrupted())
            ring.token_for(credential)  # It began before the revocation: either answer is right.
        assert ring.token_for(credential) is None

    def test_a_revocation_while_a_key_is_looked_up_is_not_lost(self, catalog, minted):
        ring = Keyring(catalog)
        credential = minted.reveal()
        for _ in range(300):
            catalog.records.append(published(minted))
            ring.refresh()
            catalog.records.append(published(minted, revoked=True))
            refresh = threading.Thread(target=ring.refresh)
            refresh.start()
            while refresh.is_alive():
                ring.key_for(credential)
            refresh.join()
            assert ring.key_for(credential) is None
