"""Machines of two releases in a row work side by side, so no migration may break the release before."""

import json
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from mauve.stores.log.nats import messages
from mauve.stores.published import PublishedRecord
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import CATALOG, LEDGER, newest_revision
from mauve.stores.warehouse.schema import SERVER, TABLES, clustered, kept_tables
from mauve.stores.warehouse.server import schema as server_schema
from support import migrations, releases
from support.migrations import BREAKING, HARMLESS, broken_by, planted
from support.releases import RELEASES

LAST = RELEASES[-1]


@pytest.fixture
def database(tmp_path):
    opened = Database(sqlite_url(tmp_path / "some.db"), busy_timeout_s=5)
    yield opened
    opened.close()


@pytest.mark.parametrize("chain", [CATALOG, LEDGER], ids=lambda chain: chain.name)
def test_the_migrations_since_the_last_release_do_not_break_it(database, chain):
    assert broken_by(database, chain) == []


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS)
def test_a_migration_may_add(database, tmp_path, body):
    assert broken_by(database, planted(CATALOG, tmp_path, body)) == []


@pytest.mark.parametrize(("body", "problem"), BREAKING.values(), ids=BREAKING)
def test_a_migration_that_breaks_the_last_release_is_refused(database, tmp_path, body, problem):
    problems = broken_by(database, planted(CATALOG, tmp_path, body))
    assert any(problem in each for each in problems), problems


def test_what_the_last_release_does_without_may_be_dropped(database, tmp_path, monkeypatch):
    chain = planted(CATALOG, tmp_path, BREAKING["a column is dropped"][0])
    monkeypatch.setattr(migrations, "UNUSED", {"catalog.keys.name": LAST.name})
    assert broken_by(database, chain) == []


def test_what_only_the_next_release_does_without_stays(database, tmp_path, monkeypatch):
    chain = planted(CATALOG, tmp_path, BREAKING["a column is dropped"][0])
    monkeypatch.setattr(migrations, "UNUSED", {"catalog.keys.name": "9.0.0"})
    assert broken_by(database, chain) == ["keys.name: it is gone or has another name"]


@pytest.mark.parametrize(("mark", "problem"), [(None, "state compatible_from"), ("9001", "excludes the last release")])
def test_a_migration_states_what_its_tables_suit(database, tmp_path, mark, problem):
    chain = planted(CATALOG, tmp_path, HARMLESS["a new table"], compatible_from=mark)
    (found,) = broken_by(database, chain)
    assert problem in found


def test_releases_are_listed_in_order_and_none_is_ahead_of_the_code():
    assert list(RELEASES) == sorted(RELEASES, key=lambda release: (release.catalog, release.ledger, release.warehouse))
    assert LAST.catalog <= newest_revision(CATALOG)
    assert LAST.ledger <= newest_revision(LEDGER)
    assert LAST.warehouse <= server_schema.SCHEMA_VERSION
    for name in releases.UNUSED:
        assert name.split(".")[0] in {"catalog", "ledger"}, name


def test_the_version_is_that_of_the_last_release():
    """Raising the version makes a release, and that adds a line."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == LAST.name
    assert json.loads(PUBLISHED.read_text()).keys() == {LAST.name}


WAREHOUSE_STATEMENTS = {1: "fea47403419ba7ce"}
"""A digest of the statements that create the tables of each version. A version that was released is never changed."""


def test_the_version_of_the_warehouse_is_raised_when_its_tables_change():
    layouts = (SERVER, clustered("c"))
    statements = [" ".join(statement.split()) for layout in layouts for statement in kept_tables(layout)]
    digest = sha256("\n".join(statements).encode()).hexdigest()[:16]
    assert WAREHOUSE_STATEMENTS[server_schema.SCHEMA_VERSION] == digest, "raise SCHEMA_VERSION, and add a line above"


EMBEDDED_STATEMENTS = {"0001": "b08dd21a9077bfbc"}
"""The same for the embedded engine, by the ledger's revision."""


def test_the_ledger_is_migrated_when_the_tables_of_the_embedded_warehouse_change():
    """They have no version of their own: the ledger's makes older releases refuse them."""
    digest = sha256("\n".join(" ".join(statement.split()) for statement in TABLES).encode()).hexdigest()[:16]
    revision = newest_revision(LEDGER)
    assert EMBEDDED_STATEMENTS[revision] == digest, "add a migration of the ledger, and a line above"


def test_the_last_release_works_with_the_warehouse_and_reads_the_messages_of_this_one():
    assert LAST.warehouse >= server_schema.COMPATIBLE_FROM
    assert messages.FORMAT in LAST.log_formats
    assert LAST.log_formats <= messages.FORMATS_READ, "a machine of the last release may still write them"


PUBLISHED = Path(__file__).with_name("published-records.json")


def described_records():
    """Return the JSON schema of each kind of published record, with the values of every enumeration in place."""
    _, components = msgspec.json.schema_components([PublishedRecord], ref_template="{name}")

    def resolved(value):
        if isinstance(value, list):
            return [resolved(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return resolved(components[value["$ref"]])
        return {name: resolved(each) for name, each in value.items() if name not in {"title", "description"}}

    kinds = [components[kind.__name__] for kind in get_args(PublishedRecord)]
    described = [{part: resolved(kind[part]) for part in ("properties", "required")} for kind in kinds]
    return {each["properties"]["type"]["enum"][0]: each for each in described}


def incompatible(was, now):
    """Say what processes of two releases cannot read of each other in the catalog that they share."""
    problems = []
    for kind, before in was.items():
        after = now.get(kind, {"properties": {}, "required": []})
        changed = [name for name, schema in before["properties"].items() if after["properties"].get(name) != schema]
        problems += [f"{kind}.{name}: the last release expects it as it was" for name in changed]
        added = [name for name in after["required"] if name not in before["properties"]]
        problems += [f"{kind}.{name}: the last release does not publish it: give it a default" for name in added]
    return problems


def test_both_releases_read_the_records_that_the_other_publishes():
    was = json.loads(PUBLISHED.read_text())[LAST.name]
    assert was.keys() == {"key", "token", "project", "secret", "organization"}
    assert incompatible(was, described_records()) == []


def test_a_changed_record_is_refused():
    was, now = described_records(), described_records()
    now["token"]["properties"]["scopes"]["items"]["enum"].append("planted")
    now["key"]["properties"].pop("org_id")
    now["project"]["required"].append("planted")
    found = [problem.split(":")[0] for problem in incompatible(was, now)]
    assert found == ["key.org_id", "token.scopes", "project.planted"]


if __name__ == "__main__":  # at a release: write down what it publishes
    PUBLISHED.write_text(json.dumps({LAST.name: described_records()}, indent=1) + "\n")
