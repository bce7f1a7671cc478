"""An upgrade that fails or is killed leaves the data as it was; what cannot be upgraded is refused with a sentence."""

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mauve.stores.sql.migrate import CATALOG, LEDGER, newest_revision
from support.migrations import HARMLESS
from support.privileges import UNPRIVILEGED
from support.service import PATIENCE_S, clean_environment, mauve, mauve_json, running
from support.upgrade_data import ask_all, revisions_in, serving

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


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A directory with some history, a token, a project, and its metrics."""
    data = tmp_path_factory.mktemp("original") / "data"
    demo = mauve_json(data, "demo", "--days", "3")
    token = mauve_json(data, "token", "mint", "--org", demo["org_id"], "--scopes", "metrics:read")["token"]
    project = demo["apps"][0]["public_id"]
    today = datetime.now(tz=UTC).date()
    window = (today - timedelta(days=9)).isoformat(), today.isoformat()
    asked = {"key": token, "window": window, "project": project}
    with serving(data, MAUVE_READ_CACHE_SECONDS="0") as (at, _):
        return data, asked, ask_all(at["url"], **asked)


@pytest.fixture
def data(original, tmp_path):
    copy = shutil.copytree(original[0], tmp_path / "data", symlinks=True)
    copy.chmod(0o700)
    return copy


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


def backups_in(data):
    return sorted(data.glob("before-upgrades/mauve-*.mauve"))


def check_works(data, original):
    """Start this release, the older one here, and compare every number."""
    _, asked, answers = original
    with serving(data, MAUVE_READ_CACHE_SECONDS="0") as (at, _):
        assert ask_all(at["url"], **asked) == answers


def test_a_backup_is_made_before_a_migration_and_leads_back(data, original, tmp_path):
    done = run_newer(data, ADDS.replace("planted", "planted_too"))
    assert done.returncode == 0, done.stderr
    assert revisions_in(data) == {"catalog": "9001", "ledger": "9001"}
    (backup,) = backups_in(data)
    assert backup.stat().st_mode & 0o077 == 0
    assert run_newer(data, ADDS.replace("planted", "planted_too")).returncode == 0
    assert backups_in(data) == [backup], "a start without a migration makes none"
    restored = tmp_path / "restored"
    done = mauve(restored, "restore", str(backup))
    assert done.returncode == 0, done.stderr
    assert revisions_in(restored) == NEWEST
    check_works(restored, original)


@pytest.mark.parametrize(("body", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_failed_upgrade_changes_nothing_and_says_how_to_go_back(data, original, body, reason):
    before = dumped(data)
    for _ in range(2):
        done = run_newer(data, body)
        assert done.returncode == 1
        sentence = done.stderr.splitlines()[-1]
        assert sentence.startswith(f"mauve: {data} could not be upgraded (")
        assert reason in sentence
        assert f"'mauve restore {shlex.quote(str(backups_in(data)[-1]))} --data NEW_DIRECTORY'" in sentence
    assert dumped(data) == before
    assert revisions_in(data) == NEWEST
    check_works(data, original)


def test_an_upgrade_that_is_killed_changes_nothing(data, original):
    before = dumped(data)
    assert run_newer(data, KILLED).returncode == -9
    assert dumped(data) == before
    check_works(data, original)


def test_the_newest_backups_are_kept(data):
    for _ in range(3):
        assert run_newer(data, FAILURES["an error"][0], MAUVE_UPGRADE_BACKUPS="2").returncode == 1
    assert len(backups_in(data)) == 2


def test_without_room_for_a_backup_nothing_is_changed(data):
    before = dumped(data)
    done = run_newer(data, ADDS.replace("planted", "planted_too"), free=1000)
    assert done.returncode == 2
    sentence = done.stderr.splitlines()[-1]
    assert "the backup before the upgrade was not made" in sentence
    assert sentence.endswith("MAUVE_UPGRADE_BACKUPS=0 to upgrade without a backup")
    assert dumped(data) == before
    assert backups_in(data) == []
    done = run_newer(data, ADDS.replace("planted", "planted_too"), free=1000, MAUVE_UPGRADE_BACKUPS="0")
    assert done.returncode == 0, done.stderr
    assert backups_in(data) == []


def test_a_newer_command_does_not_upgrade_what_an_older_service_uses(data):
    with running(data, "--workers", "1") as service:
        done = run_newer(data, ADDS.replace("planted", "planted_too"))
        assert done.returncode == 2
        assert f"an older release is running on {data} (process {service.process.pid})" in done.stderr
        assert revisions_in(data) == NEWEST


def set_revision(data, chain, revision):
    with closing(sqlite3.connect(data / f"{chain.name}.db")) as database:
        database.execute(f"UPDATE {chain.version_table} SET version_num = '{revision}'")
        database.commit()


@pytest.mark.parametrize("chain", [CATALOG, LEDGER], ids=lambda chain: chain.name)
def test_data_of_a_newer_release_is_refused_with_both_versions(data, chain):
    set_revision(data, chain, "9001")
    before, name = dumped(data), chain.name
    for arguments in (("serve", "--port", "0", "--ingest-port", "0"), ("org", "list")):
        done = mauve(data, *arguments)
        assert done.returncode == 1, done.stderr
        assert f"the {name} is at revision 9001, but this release supports {NEWEST[name]}: run the newer" in done.stderr
        assert done.stderr.count("\n") == 1, "one sentence"
    assert dumped(data) == before


def test_a_backup_of_a_newer_release_is_not_restored(data, tmp_path):
    file = tmp_path / "newer.mauve"
    set_revision(data, LEDGER, "9001")
    mauve_json(data, "backup", str(file))
    done = mauve(tmp_path / "restored", "restore", str(file))
    assert done.returncode == 1
    assert "the ledger is at revision 9001" in done.stderr
    assert not (tmp_path / "restored").exists()
