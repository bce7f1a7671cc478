"""A copy of a data directory takes what matters, and space only for what may change."""

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from mauve.maintenance import directory_copy
from mauve.maintenance.directory_copy import copy_before_upgrade, restore_copy
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.wiring.upgrade import copy_rules
from support.privileges import UNPRIVILEGED

TABLE = "warehouse/store/0af/0af41d02-8e5a-4b5c-9d11-2f7a1e9a4c11"
PART = f"{TABLE}/202611_1_4_1_9/data.bin"


class Progress:
    def __init__(self):
        self.total = self.done = 0

    def begin(self, stage, total):
        self.total = total

    def add(self, count):
        self.done += count


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    for place in (PART, f"{TABLE}/format_version.txt", "log/001/1.segment", "master.key", "cache.db", "serve.lock"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(f"content of {place}")
    (folder / "warehouse" / "data").symlink_to(f"../{TABLE}")
    for name in ("catalog.db", "ledger.db"):
        with closing(sqlite3.connect(folder / name)) as database:
            database.execute("CREATE TABLE some (a)")
            database.execute("INSERT INTO some VALUES (7)")
            database.commit()
    return folder


def copied(data, progress=None, now_ms=1_800_000_000_000, keep=2):
    made = copy_before_upgrade(data, copy_rules(), progress or Progress(), release="1.0", now_ms=now_ms, keep=keep)
    return made.folder


def names_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}


def test_it_has_everything_but_what_is_created_again(data, monkeypatch):
    monkeypatch.chdir(data)  # A socket's path must be short.
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind("core.sock")
        copy = copied(data)
    files = {PART, f"{TABLE}/format_version.txt", "log/001/1.segment", "master.key", "catalog.db", "ledger.db"}
    assert names_in(copy) == files | {"warehouse/data", "copy.json"}
    assert (copy / "warehouse" / "data").readlink() == Path(f"../{TABLE}")
    with closing(sqlite3.connect(copy / "ledger.db")) as database:
        assert database.execute("SELECT a FROM some").fetchall() == [(7,)]


def test_only_files_that_never_change_are_shared(data):
    progress = Progress()
    copy = copied(data, progress)
    shared = {name for name in names_in(copy) - {"copy.json"} if (copy / name).samefile(data / name)}
    assert shared - {"warehouse/data"} == {PART}
    assert 0 < progress.done == progress.total


def test_without_hard_links_everything_is_copied(data, monkeypatch):
    def refuse(_source, _target):
        raise PermissionError("no hard links here")

    monkeypatch.setattr(directory_copy.os, "link", refuse)
    copy = copied(data)
    assert (copy / PART).read_text() == f"content of {PART}"
    assert not (copy / PART).samefile(data / PART)


def test_data_on_another_disk_is_copied_and_not_its_address(data, tmp_path):
    elsewhere = (data / "warehouse").rename(tmp_path / "elsewhere")
    (data / "warehouse").symlink_to(elsewhere)
    copy = copied(data)
    assert not (copy / "warehouse").is_symlink()
    assert (copy / PART).read_text() == f"content of {PART}"


def test_changed_data_gets_a_copy_of_its_own(data):
    first = copied(data)
    assert copied(data, now_ms=1_800_000_001_000) == first
    (data / "log" / "001" / "2.segment").write_text("more")
    assert copied(data, now_ms=1_800_000_002_000) != first


def test_a_restored_copy_is_the_directory(data, tmp_path):
    copy, restored, checked = copied(data), tmp_path / "restored", []
    note = restore_copy(copy, restored, copy_rules(), checked.append, Progress())
    assert (note.mauve, note.created_at) == ("1.0", 1_800_000_000_000)
    assert names_in(restored) == names_in(copy) - {"copy.json"}
    assert len(checked) == 1
    assert restored.stat().st_mode & 0o777 == 0o700


def test_what_is_not_of_the_service_takes_no_space(data):
    """Backups in the directory would double with each copy, and could leave no room for one."""
    for place in ("backups/monday.mauve", "restored/catalog.db", "notes.txt", "warehouse.moved/store/a"):
        (data / place).parent.mkdir(parents=True, exist_ok=True)
        (data / place).write_bytes(b"foreign" * 1_000_000)
    progress = Progress()
    copy = copied(data, progress)
    assert progress.total < 1_000_000
    known = {"catalog.db", "ledger.db", "log", "warehouse", "master.key"}
    assert {path.name for path in copy.iterdir()} == known | {"copy.json"}


COPY_AND_RESTORE = """
import sys
from pathlib import Path
from mauve.wiring.upgrade import copy_rules
from mauve.maintenance.directory_copy import copy_before_upgrade, restore_copy
class Progress:
    begin = add = lambda *_: None
data = Path(sys.argv[1])
made = copy_before_upgrade(data, copy_rules(), Progress(), release="1.0", now_ms=0, keep=2)
restore_copy(made.folder, data / "restored", copy_rules(), print, Progress())
"""


def test_the_lost_and_found_folder_of_a_disk_is_left_alone(data):
    """It belongs to root. Every disk has one in its top folder, where a volume's data is."""
    locked = [data / "lost+found", data / "warehouse" / "lost+found"]
    for folder in locked:
        folder.mkdir(mode=0)
    done = subprocess.run(
        [*UNPRIVILEGED, sys.executable, "-P", "-c", COPY_AND_RESTORE, str(data)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (data / "restored" / PART).exists()
    assert not list((data / "restored").rglob("lost+found"))


@pytest.mark.parametrize("keep", [1, 2])
def test_a_new_copy_stays_although_the_clock_was_set_back(data, keep):
    for number in range(3):
        (data / "log" / "001" / f"{number}.more").write_text("more")
        newest = copied(data, now_ms=1_800_000_000_000 - number * 60_000, keep=keep)
        assert newest.exists()
    assert len(list(newest.parent.iterdir())) == keep


LOSSES = {
    "the ledger": ("ledger.db", "ledger.db missing"),
    "the log": ("log", "log missing"),
    "the warehouse": ("warehouse", "warehouse missing"),
    "the key": ("master.key", "master.key missing"),
    "a segment": ("log/001/1.segment", "log changed"),
    "a part": (PART, "warehouse changed"),
    "a link": ("warehouse/data", "warehouse changed"),
}


@pytest.mark.parametrize(("place", "reason"), LOSSES.values(), ids=LOSSES)
def test_a_copy_that_has_lost_something_is_refused_and_made_again(data, tmp_path, place, reason):
    copy = copied(data)
    lost = copy / place
    shutil.rmtree(lost) if lost.is_dir() and not lost.is_symlink() else lost.unlink()
    with pytest.raises(MaintenanceRefusedError, match=rf"not the copy that was made \({reason}\): copy it again"):
        restore_copy(copy, tmp_path / "restored", copy_rules(), print, Progress())
    assert not (tmp_path / "restored").exists()
    assert copied(data, now_ms=1_800_000_001_000) != copy


def test_a_copy_with_a_file_cut_short_is_refused(data, tmp_path):
    copy = copied(data)
    os.truncate(copy / "ledger.db", 4096)
    with pytest.raises(MaintenanceRefusedError, match=r"ledger\.db changed"):
        restore_copy(copy, tmp_path / "restored", copy_rules(), print, Progress())


def test_a_copy_with_a_damaged_note_stops_no_upgrade(data, tmp_path):
    copy = copied(data)
    (copy / "copy.json").write_bytes(b'{"mauve": "\xff')
    assert copied(data, now_ms=1_800_000_001_000) != copy
    with pytest.raises(MaintenanceRefusedError, match="not a complete copy"):
        restore_copy(copy, tmp_path / "restored", copy_rules(), print, Progress())
