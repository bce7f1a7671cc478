"""What every edge promises."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import KeyKind, Scope
from mauve.core.organization import Standing
from mauve.stores import StoreUnavailableError
from mauve.stores.edge import (
    PublishedKey,
    PublishedOrganization,
    PublishedProject,
    PublishedSecret,
    PublishedToken,
)
from mauve.stores.localdisk.edge import SqliteEdge


def a_key(version=1, key_id="key_1", *, revoked=False):
    return PublishedKey(
        key_id, version, bytes(32), KeyKind.SERVER, Environment.LIVE, "proj_1", "app_1", "org_1", revoked=revoked
    )


def a_secret(version=1, provider=Provider.BILLER_A):
    return PublishedSecret("proj_1", provider, version, Environment.TEST, "app_1", "org_1", b"\x00\xff sealed")


def a_token(scopes=frozenset(Scope)):
    return PublishedToken("L" * 16, 1, b"\xff" * 32, "org_1", Environment.LIVE, scopes, revoked=False)


def a_project(environment=Environment.LIVE):
    return PublishedProject(f"proj_{environment}", 1, "app_1", "org_1", environment)


def an_organization(version=1):
    return PublishedOrganization("org_1", version, Standing.SUSPENDED, 2**50, None, 600, 2**40, 10_000)


def test_a_new_edge_is_empty(open_edge):
    assert open_edge().changes_since(0) == ([], 0)


def test_an_edge_keeps_its_own_id(open_edge):
    assert open_edge().edge_id() == open_edge().edge_id() != ""


def test_every_kind_of_record_is_returned_as_published(open_edge):
    edge = open_edge()
    records = [
        a_key(),
        a_token(),
        a_project(),
        a_project(Environment.TEST),
        a_secret(),
        a_secret(provider=Provider.BILLER_B),
        an_organization(),
    ]
    assert edge.publish(records) == edge.edge_id()
    assert edge.changes_since(0).records == records


def test_a_record_of_another_release_is_skipped(tmp_path):
    edge = SqliteEdge(tmp_path / "edge.db", busy_timeout_s=5)
    edge.publish([a_key()])
    with closing(sqlite3.connect(tmp_path / "edge.db")) as file:
        record = '{"type":"usage","org_id":"org_1","period":"2026-11","events":7}'
        file.execute("INSERT INTO published VALUES ('usage', 'org_1', 7, 2, ?)", (record,))
        file.commit()
    edge.publish([an_organization()])
    assert edge.changes_since(0) == ([a_key(), an_organization()], 3)
    edge.close()


def test_a_token_without_scopes_is_returned_without_scopes(open_edge):
    edge = open_edge()
    edge.publish([a_token(scopes=frozenset())])
    assert edge.changes_since(0).records == [a_token(scopes=frozenset())]


def test_another_reader_sees_a_published_record_at_once(open_edge):
    writer, reader = open_edge(), open_edge()
    assert reader.changes_since(0).records == []
    writer.publish([a_key()])
    assert reader.changes_since(0).records == [a_key()]


def test_only_later_changes_are_returned(open_edge):
    edge = open_edge()
    edge.publish([a_key(), an_organization()])
    revision = edge.changes_since(0).revision
    assert edge.changes_since(revision) == ([], revision)
    edge.publish([a_key(version=2, revoked=True)])
    changes = edge.changes_since(revision)
    assert changes.records == [a_key(version=2, revoked=True)]
    assert changes.revision > revision


def test_an_older_version_never_replaces_a_newer_one(open_edge):
    edge = open_edge()
    edge.publish([a_key(version=2, revoked=True)])
    revision = edge.changes_since(0).revision
    edge.publish([a_key(version=1)])
    assert edge.changes_since(0).records == [a_key(version=2, revoked=True)]
    assert edge.changes_since(revision).records == []


def test_published_records_survive_reopening(open_edge):
    edge = open_edge()
    edge.publish([a_key()])
    edge.close()
    assert open_edge().changes_since(0).records == [a_key()]


def test_publishing_nothing_is_allowed(open_edge):
    edge = open_edge()
    assert edge.publish([]) == edge.edge_id()
    assert edge.changes_since(0) == ([], 0)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 6), st.booleans()), max_size=20))
def test_in_any_order_a_follower_ends_with_the_highest_version_of_each_record(open_edge, steps):
    """Publications arrive in any order, some twice; a follower that polls now and then misses none."""
    writer, reader = open_edge(), open_edge()
    prefix = str(writer.changes_since(0).revision)
    newest: dict[str, int] = {}
    followed: dict[str, int] = {}
    revision = reader.changes_since(0).revision
    for name, version, looks in steps:
        key_id = f"{prefix}{name}"
        writer.publish([a_key(version=version, key_id=key_id)])
        newest[key_id] = max(version, newest.get(key_id, 0))
        if looks:
            changes = reader.changes_since(revision)
            revision = changes.revision
            followed |= {record.key_id: record.version for record in changes.records}
    changes = reader.changes_since(revision)
    followed |= {record.key_id: record.version for record in changes.records}
    assert followed == newest


def test_damage_is_noticed_even_if_nothing_was_published_since(tmp_path):
    path = tmp_path / "edge.db"
    with closing(SqliteEdge(path, 30)) as publisher, closing(SqliteEdge(path, 30)) as reader:
        publisher.publish([a_key()])
        revision = reader.changes_since(0).revision
        assert reader.changes_since(revision).records == []
        for file in (path, path.with_name("edge.db-wal")):
            file.write_bytes(b"damaged" * (file.stat().st_size // 7))
        with pytest.raises(StoreUnavailableError):
            reader.changes_since(revision)
