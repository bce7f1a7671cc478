"""An upgrade that fails or is killed leaves the data as it was; what cannot be upgraded is refused with a sentence."""

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from mauve.stores.sql.migrate import CATALOG, LEDGER, newest_revision
from mauve.stores.warehouse.schema import EMBEDDED_FORMAT
from support.migrations import HARMLESS
from support.privileges import UNPRIVILEGED
from support.service import PATIENCE_S, clean_environment, mauve, mauve_json, running
from support.upgrade_data import Program, every_answer, read_notes, revisions_in, unpack

TESTS = Path(__file__).parents[1]
NEWEST = {chain.name: newest_revision(chain) for chain in (CATALOG, LEDGER)}
# The command of a release that is newer by one migration of each database.
NEWER = """
import json, shutil, sys
from collections import namedtuple
from pathlib import Path
from mauve.cli.main import main
from mauve.wiring import upgrade
from support.migrations import planted
plan = json.loads(sys.argv.pop(1))
upgrade.CATALOG = planted(upgrade.CATALOG, Path(plan["folder"]), plan["catalog"])
upgrade.LEDGER = planted(upgrade.LEDGER, Path(plan["folder"]), plan["ledger"])
if "free" in plan:
    Usage = namedtuple("Usage", "total used free")
    shutil.disk_usage = lambda path: Usage(plan["free"], 0, plan["free"])
main()
"""
ADDS = HARMLESS["a new table"]
HALF_DONE = 'op.add_column("payments", sa.Column("planted", sa.Text)); '
FAILURES = {
    "an error": (HALF_DONE + 'raise RuntimeError("planted")', "(planted)"),
    "a full disk": (
        HALF_DONE + "b = op.get_bind(); b.exec_driver_sql('PRAGMA max_page_count = 1'); "
        "b.exec_driver_sql('CREATE TABLE big AS SELECT zeroblob(10000000) AS zeros')",
        "disk is full",
    ),
}
KILLED = HALF_DONE + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def data(tmp_path):
    """Return a directory that this release has upgraded and filled, stopped."""
    folder, _ = unpack("0.1.0", tmp_path)
    mauve_json(folder, "org", "list")
    shutil.rmtree(folder / "before-upgrades", ignore_errors=True)  # The tests count the copies of the next upgrade.
    return folder


def run_newer(data, ledger, *arguments, catalog=ADDS, free=None, **environment):
    plan = {"folder": str(data.parent / "chains" / os.urandom(4).hex()), "catalog": catalog, "ledger": ledger}
    plan |= {} if free is None else {"free": free}
    return subprocess.run(
        [
            *UNPRIVILEGED,
            sys.executable,
            "-c",
            NEWER,
            json.dumps(plan),
            *(arguments or ("org", "list")),
            "--data",
            str(data),
        ],
        env=clean_environment(data, PYTHONPATH=str(TESTS), **environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def dumped(data):
    content = {}
    for chain in (CATALOG, LEDGER):
        with closing(sqlite3.connect(data / f"{chain.name}.db")) as database:
            content[chain.name] = list(database.iterdump())
    return content


def copies_in(data):
    folder = data / "before-upgrades"
    return sorted(path for path in folder.iterdir() if path.name != "unfinished") if folder.exists() else []


def check_works(data):
    """Start this release, the older one here, and compare every number."""
    notes, _ = read_notes("0.1.0")
    keys = json.loads((data.parent / "keys.json").read_text())
    with Program().serving(data, MAUVE_READ_CACHE_SECONDS="0") as (at, _):
        assert every_answer(at["url"], keys, notes.demo_project, notes.window) == notes.answers


def test_a_newer_release_upgrades_it(data):
    done = run_newer(data, ADDS.replace("planted", "planted_too"))
    assert done.returncode == 0, done.stderr
    assert revisions_in(data) == {"catalog": "9001", "ledger": "9001"}
    assert len(copies_in(data)) == 1


@pytest.mark.parametrize(("body", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_failed_upgrade_changes_nothing_and_says_how_to_go_back(data, body, reason):
    before = dumped(data)
    for _ in range(2):
        done = run_newer(data, body)
        assert done.returncode == 1
        sentence = done.stderr.splitlines()[-1]
        assert sentence.startswith(f"mauve: {data} could not be upgraded (")
        assert reason in sentence
        (copy,) = copies_in(data)  # The second attempt makes no further copy of the same data.
        assert f"'mauve restore {shlex.quote(str(copy))} --data {data}-restored'" in sentence
    assert dumped(data) == before
    assert revisions_in(data) == NEWEST
    check_works(data)


def test_the_way_back_leads_into_the_data_if_nothing_beside_it_can_be_written(data):
    """As in a container, where only the volume is writable."""
    (data.parent / "chains").mkdir()
    data.parent.chmod(0o500)
    try:
        done = run_newer(data, FAILURES["an error"][0])
        way_back = shlex.split(done.stderr.splitlines()[-1].partition("run '")[2].partition("'")[0])
        assert way_back[-1] == str(data / "restored")
        assert mauve(data / "restored", *way_back[1:3]).returncode == 0
    finally:
        data.parent.chmod(0o700)
    assert revisions_in(data / "restored") == NEWEST
    mauve_json(data / "restored", "org", "list")


def test_an_upgrade_that_is_killed_changes_nothing(data):
    before = dumped(data)
    assert run_newer(data, KILLED).returncode == -9
    assert dumped(data) == before
    check_works(data)


def test_a_copy_that_was_not_finished_is_made_again(data):
    unfinished = data / "before-upgrades" / "unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "catalog.db").write_bytes(b"half")
    assert run_newer(data, ADDS.replace("planted", "planted_too")).returncode == 0
    assert not unfinished.exists()
    (copy,) = copies_in(data)
    assert revisions_in(copy) == NEWEST
    assert mauve(data.parent / "again", "restore", str(copy)).returncode == 0
    assert revisions_in(data.parent / "again") == NEWEST


def test_the_newest_copies_are_kept(data):
    for number in range(3):
        mauve_json(data, "org", "create", f"Org {number}")
        assert run_newer(data, FAILURES["an error"][0], MAUVE_UPGRADE_COPIES="2").returncode == 1
    assert len(copies_in(data)) == 2


def test_without_room_for_a_copy_nothing_is_changed(data):
    before = dumped(data)
    done = run_newer(data, ADDS.replace("planted", "planted_too"), free=1000)
    assert done.returncode == 2
    sentence = done.stderr.splitlines()[-1]
    assert "has 1 KB free, and the copy before the upgrade may need" in sentence
    assert sentence.endswith("upgrade without a copy with MAUVE_UPGRADE_COPIES=0")
    assert dumped(data) == before
    assert not (data / "before-upgrades").exists()
    done = run_newer(data, ADDS.replace("planted", "planted_too"), free=1000, MAUVE_UPGRADE_COPIES="0")
    assert done.returncode == 0, done.stderr
    assert "no copy is made, because MAUVE_UPGRADE_COPIES is 0" in done.stderr
    assert not (data / "before-upgrades").exists()


def test_a_newer_command_does_not_upgrade_what_an_older_service_uses(data):
    with running(data, "--workers", "1") as service:
        done = run_newer(data, ADDS.replace("planted", "planted_too"))
        assert done.returncode == 2
        assert f"an older release is running on {data} (process {service.process.pid})" in done.stderr
        assert revisions_in(data) == NEWEST


NEWER_FORMATS = '{"mauve": "9.8.7", "stores": {"warehouse": 1, "log": 1, "edge": 1, "later": 4, %s}}'


@pytest.mark.parametrize("store", ["warehouse", "log", "edge", "catalog", "ledger"])
def test_data_of_a_newer_release_is_refused_with_both_versions(data, store):
    if store in NEWEST:
        chain = {"catalog": CATALOG, "ledger": LEDGER}[store]
        with closing(sqlite3.connect(data / f"{store}.db")) as database:
            database.execute(f"UPDATE {chain.version_table} SET version_num = '9001'")
            database.commit()
        expected = f"the {store} is at revision 9001 and this release knows {NEWEST[store]}: run the newer mauve"
    else:
        (data / "formats.json").write_text(NEWER_FORMATS % f'"{store}": 7')
        known = EMBEDDED_FORMAT if store == "warehouse" else 1
        used_by = f"was last used by mauve 9.8.7 and this is 0.1.0 ({store} 7 instead of {known})"
        expected = f"{used_by}: run 9.8.7 or newer, or"
    before = dumped(data)
    for arguments in (("serve", "--port", "0", "--ingest-port", "0"), ("org", "list")):
        done = mauve(data, *arguments)
        assert done.returncode == 1, done.stderr
        assert expected in done.stderr
        assert done.stderr.count("\n") == 1, "one sentence"
    assert dumped(data) == before


@pytest.mark.parametrize("content", [b"", b"\0" * 60, b'{"mauve": "\xff"}', b'{"mauve": "9.8.7", "stores": []}'])
def test_a_damaged_note_of_the_formats_is_refused(data, content):
    """Without the formats, an older release could write into files of a newer one."""
    (data / "formats.json").write_bytes(content)
    before = dumped(data)
    for arguments in (("serve", "--port", "0", "--ingest-port", "0"), ("org", "list")):
        done = mauve(data, *arguments)
        assert done.returncode == 1, done.stderr
        assert f"{data / 'formats.json'} is damaged, or of a newer release: run that release, or" in done.stderr
        assert done.stderr.count("\n") == 1, "one sentence"
    assert dumped(data) == before
    assert (data / "formats.json").read_bytes() == content
    (data / "formats.json").unlink()
    mauve_json(data, "org", "list")  # A directory without one is older.
    assert len(copies_in(data)) == 1


def test_a_backup_of_a_newer_release_is_not_restored(data, tmp_path):
    file = tmp_path / "newer.mauve"
    (data / "formats.json").write_text(NEWER_FORMATS % f'"warehouse": {EMBEDDED_FORMAT + 1}')
    mauve_json(data, "backup", str(file))
    done = mauve(tmp_path / "restored", "restore", str(file))
    assert done.returncode == 1
    assert f"and this is 0.1.0 (warehouse {EMBEDDED_FORMAT + 1} instead of {EMBEDDED_FORMAT})" in done.stderr
    assert not (tmp_path / "restored").exists()


def test_a_folder_that_is_no_copy_is_not_restored(data, tmp_path):
    done = mauve(tmp_path / "restored", "restore", str(data))
    assert done.returncode != 0
    assert "there is no backup in" in done.stderr
    assert not (tmp_path / "restored").exists()
