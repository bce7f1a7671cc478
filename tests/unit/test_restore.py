"""A restore is complete, or leaves nothing."""

from pathlib import Path

import pytest

from mauve.maintenance.archive import FORMAT, Header, Member, write_archive
from mauve.maintenance.disk_space import check_free_space, format_bytes
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.restore import RestoreSteps, restore
from mauve.stores.data_directory import DirectoryError, make_private_directory

CONTENTS = {"catalog.db": b"catalog", "ledger.db": b"ledger", "log/000/1.segment": b"log", "frozen/events/p/d": b"rows"}
RESTORED = ["catalog.db", "ledger.db", "log/000/1.segment", "warehouse/d"]


class NoProgress:
    def begin(self, stage, bytes_total):
        pass

    def add(self, byte_count):
        pass


def build(data, frozen):
    """Build a warehouse, as an engine does."""
    (data / "warehouse").mkdir()
    (frozen.folders["events"] / "p" / "d").rename(data / "warehouse" / "d")


def fail(*_):
    raise OSError("the disk is on fire")


@pytest.fixture
def file(tmp_path):
    members = []
    for place, (name, content) in enumerate(CONTENTS.items()):
        (tmp_path / f"member {place}").write_bytes(content)
        members.append(Member(name, tmp_path / f"member {place}"))
    with (tmp_path / "backup").open("wb") as out:
        write_archive(out, Header(FORMAT, "1", 5, 100, 7, has_master_key=False), members, int)
    return tmp_path / "backup"


@pytest.fixture
def data(tmp_path):
    return tmp_path / "deep" / "data"


def run(file, data, **steps):
    known = {"tables": ("events",), "check_tables": lambda _: None, "build_warehouse": build}
    return restore(file, data, RestoreSteps(**(known | steps)), NoProgress())


def files_in(data):
    return sorted(path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", ["missing", "empty", "a mount point"])
def test_everything_is_restored_and_nothing_else(file, data, kind, monkeypatch):
    if kind != "missing":
        data.mkdir(parents=True)
    if kind == "a mount point":
        (data / "lost+found").mkdir()
        monkeypatch.setattr(Path, "is_mount", lambda path: path == data)
    restored = run(file, data)
    assert (restored.created_at, restored.events, restored.has_master_key) == (5, 7, False)
    assert files_in(data) == RESTORED
    assert [path.name for path in data.parent.iterdir()] == ["data"]
    assert oct((data / "catalog.db").stat().st_mode)[-3:] == "600"
    make_private_directory(data)


def test_a_link_to_a_directory_remains_a_link(file, data, tmp_path):
    data.parent.mkdir()
    data.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    run(file, data)
    assert data.is_symlink()
    assert files_in(tmp_path / "elsewhere") == RESTORED


@pytest.mark.parametrize("step", ["check_tables", "build_warehouse"])
@pytest.mark.parametrize("is_mount", [False, True])
def test_a_failure_leaves_nothing(file, data, step, is_mount, monkeypatch):
    data.mkdir(parents=True)
    monkeypatch.setattr(Path, "is_mount", lambda _: is_mount)
    with pytest.raises(OSError, match="on fire"):
        run(file, data, **{step: fail})
    assert [*data.parent.rglob("*")] == [data]


def test_a_failure_while_files_are_moved_leaves_nothing(file, data, monkeypatch):
    data.mkdir(parents=True)
    monkeypatch.setattr(Path, "is_mount", lambda _: True)
    rename = Path.rename

    def fail_at_last(path, target):
        return fail() if path.name == "catalog.db" else rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_at_last)
    with pytest.raises(OSError, match="on fire"):
        run(file, data)
    assert [*data.parent.rglob("*")] == [data]


def test_leftovers_of_a_killed_restore_are_removed_by_the_next(file, data):
    leftover = data.parent / ".data.restoring"
    leftover.mkdir(parents=True)
    (leftover / "catalog.db").write_bytes(b"half")
    run(file, data)
    assert (data / "catalog.db").read_bytes() == b"catalog"
    assert not leftover.exists()


def test_a_directory_in_which_a_restore_was_killed_is_not_served(file, data):
    (data / "restoring").mkdir(parents=True)
    with pytest.raises(DirectoryError, match="did not end"):
        make_private_directory(data)
    run(file, data)
    make_private_directory(data)


def test_a_second_restore_into_the_same_directory_is_refused(file, data):
    def build_and_try_again(drafts, frozen):
        with pytest.raises(MaintenanceRefusedError, match="in progress"):
            run(file, data)
        build(drafts, frozen)

    run(file, data, build_warehouse=build_and_try_again)
    assert files_in(data) == RESTORED


def test_a_file_in_place_of_the_directory_is_left_alone(file, data):
    data.parent.mkdir()
    data.write_text("mine")
    with pytest.raises(MaintenanceRefusedError, match="not a directory"):
        run(file, data)
    assert data.read_text() == "mine"


def test_free_space_is_checked(tmp_path):
    check_free_space(tmp_path, 1)
    with pytest.raises(MaintenanceRefusedError, match=r"free and 4194304\.0 GB may be needed"):
        check_free_space(tmp_path, 2**52)


@pytest.mark.parametrize(
    ("byte_count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1024, "1 KB"), (5 * 2**20, "5 MB"), (3 * 2**29, "1.5 GB")],
)
def test_sizes_are_shown_with_few_digits(byte_count, words):
    assert format_bytes(byte_count) == words
