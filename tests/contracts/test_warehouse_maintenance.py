"""What every warehouse promises about maintenance: rows lose a person, and no metric changes."""

import itertools
import os
from datetime import date, timedelta
from pathlib import Path

import pytest

from mauve.core.events import Activity
from mauve.core.times import DAY_MS
from mauve.core.window import Window
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.maintenance import Frozen
from mauve.stores.warehouse import EventRows, first_seq
from mauve.stores.warehouse.maintenance import ChdbMaintenance
from mauve.stores.warehouse.server.server import ServerConnection
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from mauve.wiring.maintenance import ServerMaintenance

DAY = date(2026, 11, 15)
EPOCH = date(1970, 1, 1)
ALWAYS = Window(date.min, date.max)
STREAM = 98
record_numbers = itertools.count(1)
projects = itertools.count(1)
RAW = "user, id, props, claimed_at"
NAME_BYTES = "it's\\ ann\t\n{user:String} 👩"


@pytest.fixture
def home(connection, warehouse):
    """The path that the engine under test has open."""
    of_events = "database = 'mauve' AND name = 'events'"
    ((events,),) = connection.read(f"SELECT data_paths[1] FROM system.tables WHERE {of_events}", {})
    return Path(events).parents[2]


@pytest.fixture
def maintenance(maintenance_connection, home):
    if isinstance(maintenance_connection, ServerConnection):
        return ServerMaintenance(maintenance_connection)
    return ChdbMaintenance(maintenance_connection, home)


@pytest.fixture
def project():
    return f"proj_kept_{next(projects)}"


@pytest.fixture
def load(warehouse, project):
    """Load events given as (name, user, day); the last one repeats an id."""

    def load_events(events, project=project):
        rows = EventRows()
        seq = first_seq(STREAM, next(record_numbers))
        for place, (name, user, day) in enumerate(events):
            moment = (day - EPOCH).days * DAY_MS + 12_345_678
            rows.project.append(project)
            rows.name.extend([name])
            rows.received_at.append(moment)
            rows.occurred_at.append(moment)
            rows.claimed_at.extend([day.isoformat()])
            rows.user.extend([user])
            rows.id.extend([f"{project} {user} {place}"])
            rows.props.extend_encoded([f'{{"mail":"{place}@example.com"}}'.encode()])
            rows.seq.append(seq + place)
        warehouse.stage(rows)
        warehouse.commit({rows.seq[-1]}, [])
        return rows

    return load_events


def metrics(connection, project):
    """Return everything readable about a project."""
    reader = WarehouseReader(lambda: connection)
    names = reader.event_names(project, ALWAYS, 100)
    return (
        names,
        [reader.event_days(project, name, ALWAYS) for name, _ in names],
        [reader.users_by_day([project], seen, ALWAYS) for seen in Activity],
        reader.users([project], frozenset(Activity), ALWAYS, None),
    )


def raw_rows(connection, project):
    sql = (
        f"SELECT {RAW}, occurred_at, received_at, seq FROM mauve.events WHERE project = {{project:String}} ORDER BY seq"
    )
    return connection.read(f"{sql} SETTINGS output_format_json_quote_64bit_integers = 0", {"project": project})


EVENTS = [
    ("view", "ann", DAY),
    ("view", "bob", DAY),
    ("view", "ann", DAY - timedelta(days=1)),
    ("user_signup", "ann", DAY),
    ("view", "", DAY),
    ("view", "ann", DAY),
]


def test_an_erased_person_changes_no_metric_and_leaves_no_trace(maintenance, connection, project, load):
    rows = load(EVENTS)
    before = metrics(connection, project)
    assert before[0] == [("view", 4), ("user_signup", 1)]
    assert maintenance.erase_user(project, "ann") == 4, "repeats too"
    assert metrics(connection, project) == before
    erased = [row for row, (_, user, _) in zip(raw_rows(connection, project), EVENTS, strict=True) if user == "ann"]
    assert {tuple(row[:4]) for row in erased} == {("", "", "", "")}
    assert all(row[4] % DAY_MS == row[5] % DAY_MS == 0 for row in erased), "not even the time of day"
    assert [row[6] for row in raw_rows(connection, project)] == list(rows.seq), "a loader still knows what is stored"


def test_erasing_a_person_leaves_the_events_of_others_unchanged(maintenance, connection, project, load):
    load(EVENTS)
    load(EVENTS, f"{project}_other")
    before = raw_rows(connection, f"{project}_other")
    maintenance.erase_user(project, "ann")
    assert raw_rows(connection, f"{project}_other") == before
    assert [row[0] for row in raw_rows(connection, project)] == ["", "bob", "", "", "", ""]


def test_erasing_again_finds_nothing(maintenance, project, load):
    load(EVENTS)
    assert (maintenance.erase_user(project, "ann"), maintenance.erase_user(project, "ann")) == (4, 0)
    assert maintenance.erase_user(project, "unknown") == 0
    load(EVENTS)
    assert maintenance.erase_user(project, "ann") == 4, "who comes back can be erased again"


def test_any_name_can_be_erased_and_is_written_nowhere(maintenance, connection, project, load, home):
    load([("view", NAME_BYTES, DAY), ("view", "bob", DAY)])
    assert maintenance.erase_user(project, NAME_BYTES) == 1
    commands = connection.read("SELECT command FROM system.mutations", {})
    assert [command for (command,) in commands if "ann" in command] == []
    # `os.walk` skips folders that a merge removes while it looks; `rglob` would fail.
    files = [Path(folder, name) for folder, _, names in os.walk(home) for name in names if name.startswith("mutation_")]
    assert [path for path in files if path.exists() and b"ann" in path.read_bytes()] == []


def test_a_counted_id_is_known_after_the_person_was_erased(maintenance, open_warehouse, project, load):
    rows = load(EVENTS)
    maintenance.erase_user(project, "ann")
    found = open_warehouse().stage(rows)
    assert sorted(place for same in found for place in same.places) == list(range(len(rows) - 1))


def test_old_events_count_and_are_anonymous(maintenance, connection, project, load):
    old = date(2001, 1, 31)
    maintenance.anonymize_raw_before(old + timedelta(days=1))  # what other tests left
    load([("view", "ann", old), ("view", "bob", old + timedelta(days=1)), ("view", "bob", old - timedelta(days=400))])
    before = metrics(connection, project)
    assert maintenance.anonymize_raw_before(old + timedelta(days=1)) == 2
    assert metrics(connection, project) == before
    assert [row[0] for row in raw_rows(connection, project)] == ["", "bob", ""]
    assert maintenance.anonymize_raw_before(old + timedelta(days=1)) == 0
    assert maintenance.anonymize_raw_before(date(1960, 1, 1)) == 0


@pytest.mark.parametrize("connection", ["chdb"], indirect=True)
def test_frozen_files_do_not_change(maintenance, connection, project, load, home):
    load(EVENTS)
    ((count,),) = connection.rows("SELECT count() FROM mauve.events")
    frozen = maintenance.freeze()
    files = {
        path: path.read_bytes() for folder in frozen.folders.values() for path in folder.rglob("*.*") if path.is_file()
    }
    assert frozen.events == count
    assert set(frozen.folders) == {"events", "actives", "seen"}
    assert any(path.name == "data.bin" for path in files)
    load(EVENTS)
    maintenance.erase_user(project, "ann")
    connection.run("OPTIMIZE TABLE mauve.events FINAL")
    assert {path: path.read_bytes() for path in files} == files
    maintenance.thaw()
    assert not any(path.exists() for path in files)
    assert not (home / "shadow").exists()
    maintenance.thaw()


@pytest.mark.parametrize("connection", [pytest.param("clickhouse", marks=pytest.mark.servers)], indirect=True)
def test_a_server_is_backed_up_by_its_own_means(maintenance):
    for attempt in (maintenance.freeze, lambda: maintenance.adopt(Frozen({}, 0))):
        with pytest.raises(MaintenanceRefusedError, match="BACKUP"):
            attempt()
    maintenance.thaw()


def test_a_project_is_deleted_with_its_user_counts_and_others_stay(maintenance, connection, load, project):
    other = f"{project}_other"
    for each in (project, other):
        load([("view", "ann", DAY), ("view", "bob", DAY - timedelta(days=40))], each)

    def rows_in(table, each):
        query = f"SELECT count() FROM mauve.{table} WHERE project = {{project:String}}"
        ((count,),) = connection.read(query, {"project": each})
        return int(count)

    before = rows_in("events", other), rows_in("actives", other)
    assert maintenance.delete_project(project) == 2
    assert (rows_in("events", project), rows_in("actives", project)) == (0, 0)
    assert (rows_in("events", other), rows_in("actives", other)) == before
    assert maintenance.delete_project(project) == 0
