import multiprocessing
import os
import stat
import tempfile
from pathlib import Path

import pytest

from mauve.stores.data_directory import (
    DirectoryError,
    HeldError,
    Holder,
    clear_holder,
    exclusive_lock,
    has_room,
    hold,
    holder_of,
    make_private_directory,
    record_holder,
    write_private_file,
)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_is_made_private_even_if_it_was_not(tmp_path):
    made = tmp_path / "a" / "b"
    assert make_private_directory(made)
    assert mode_of(made) == 0o700
    made.chmod(0o755)
    assert not make_private_directory(made)
    assert mode_of(made) == 0o700


def test_a_directory_that_is_gone_has_no_room(tmp_path):
    assert has_room(tmp_path)
    assert not has_room(tmp_path / "gone")


@pytest.mark.parametrize("name", ["a file", "a file/below"])
def test_a_path_that_is_not_a_directory_is_refused(tmp_path, name):
    (tmp_path / "a file").write_text("")
    with pytest.raises(DirectoryError, match="not a directory"):
        make_private_directory(tmp_path / name)


def test_a_shared_directory_is_not_touched(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "of another program").write_text("")
    with pytest.raises(DirectoryError, match="shared"):
        make_private_directory(shared)
    assert mode_of(shared) == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_directory_of_another_user_is_refused_with_the_command_that_helps(mode):
    with tempfile.TemporaryDirectory() as above:  # Not below tmp_path, which is for this user only.
        path = Path(above) / "volume"
        path.parent.chmod(0o755)
        path.mkdir()
        path.chmod(mode)  # whatever the umask is
        os.seteuid(10_001)
        try:
            with pytest.raises(DirectoryError, match=f"{path} belongs to user 0: run 'chown 10001 {path}' as root"):
                make_private_directory(path)
        finally:
            os.seteuid(0)
        assert mode_of(path) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_root_sees_whose_directory_it_is(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "catalog.db").touch()
    os.chown(tmp_path / "data", 10_001, 10_001)
    with pytest.raises(DirectoryError, match="belongs to user 10001: run this as that user"):
        make_private_directory(tmp_path / "data")


def test_a_private_file_is_readable_by_its_owner_only_and_leaves_no_draft(tmp_path):
    path = tmp_path / "master.key"
    write_private_file(path, b"content")
    assert (path.read_bytes(), mode_of(path)) == (b"content", 0o600)
    assert [entry.name for entry in tmp_path.iterdir()] == ["master.key"]


def test_a_locked_directory_names_its_holder_until_it_is_released(tmp_path):
    assert holder_of(tmp_path) is None
    with hold(tmp_path) as lock:
        record_holder(lock, Holder(os.getpid(), "http://here", "http://there"))
        assert holder_of(tmp_path) == Holder(os.getpid(), "http://here", "http://there")
        with pytest.raises(HeldError, match=f"process {os.getpid()}"):
            hold(tmp_path)
    assert holder_of(tmp_path) is None
    hold(tmp_path).close()


def test_a_server_that_ends_leaves_no_holder_and_one_that_stored_nothing_no_directory(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "catalog.db").touch()
    with hold(data) as lock:
        record_holder(lock, Holder(os.getpid(), "http://here", "http://there"))
        clear_holder(lock, data, remove_unused=True)
        assert holder_of(data) is None
    assert (data / "serve.lock").read_bytes() == b""
    (data / "catalog.db").unlink()
    with hold(data) as lock:
        clear_holder(lock, data, remove_unused=True)
    assert not data.exists()


def test_a_directory_that_existed_before_stays_even_if_nothing_was_stored(tmp_path):
    with hold(tmp_path) as lock:
        clear_holder(lock, tmp_path, remove_unused=False)
    assert list(tmp_path.iterdir()) == []


def _append(path, mark):
    with exclusive_lock(path.parent, "turn"):
        before = path.read_text()
        path.write_text(before + mark)


def test_under_an_exclusive_lock_no_update_is_lost(tmp_path):
    path = tmp_path / "marks"
    path.write_text("")
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append, args=(path, mark)) for mark in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(path.read_text()) == list("abcd")
