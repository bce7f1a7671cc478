"""A backup of servers: two at once do not disturb each other, and a failed dump is noticed at once."""

import shlex
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from unittest.mock import MagicMock

import pytest

from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.server_backup import (
    DUMP,
    STEPS,
    ServerBackupSteps,
    ServerPlaces,
    backup_steps,
    write_server_backup,
)
from mauve.stores import StoreUnavailableError
from mauve.stores.sql.dump import PostgresDump

PLACES = ServerPlaces(
    database="postgresql://mauve@db/mauve?sslmode=require&target_session_attrs=read-write",
    warehouse="mauve",
    on_cluster="",
    streams=("MAUVE-240",),
    nats="nats://a,nats://b",
    keep_hours=48,
)


def steps_with(dump=None, copy=lambda: None):
    @contextmanager
    def dumping(file):
        file.write_bytes(b"dump")
        yield dump or MagicMock()

    def copy_warehouse(_destination, check):
        copy()
        check()

    return ServerBackupSteps(dumping, copy_warehouse)


def back_up(folder, **steps):
    return write_server_backup(steps_with(**steps), PLACES, folder, "Disk('backups', 'x')", MagicMock())


def test_of_two_backups_to_one_name_the_second_to_finish_is_refused_and_the_first_is_whole(tmp_path):
    folder = tmp_path / "made"
    with pytest.raises(MaintenanceRefusedError, match="exists"):
        back_up(folder, copy=lambda: back_up(folder))
    assert {path.name for path in folder.iterdir()} == {DUMP, STEPS}
    assert (folder / DUMP).read_bytes() == b"dump"
    assert list(tmp_path.iterdir()) == [folder], "no draft is left"


def failing_process():
    program = [sys.executable, "-c", "import sys; sys.exit('no permission')"]
    return subprocess.Popen(program, stderr=subprocess.PIPE)


def test_a_dump_that_fails_at_the_start_is_noticed_before_anything_is_copied(tmp_path):
    copied, dump = [], PostgresDump(failing_process(), tmp_path / "none")
    with pytest.raises(StoreUnavailableError, match="no permission"):
        back_up(tmp_path / "made", dump=dump, copy=lambda: copied.append(1))
    assert copied == []
    assert list(tmp_path.iterdir()) == []


def test_a_dump_that_fails_later_is_noticed_while_the_warehouse_is_copied(tmp_path):
    process = failing_process()
    dump = PostgresDump(process, tmp_path / "none")
    dump.wait_for_data = nullcontext
    with pytest.raises(StoreUnavailableError, match="no permission"):
        back_up(tmp_path / "made", dump=dump, copy=process.wait)
    assert not (tmp_path / "made").exists()


def test_commands_may_be_given_to_a_shell_whatever_the_names_contain(tmp_path):
    folder = tmp_path / "a b"
    lines = backup_steps(PLACES, folder, "Disk('backups', 'x')").splitlines()
    (dump,) = [line for line in lines if "pg_dump" in line and "1." in line]
    (restore,) = [line for line in lines if "pg_restore" in line]
    assert shlex.split(dump)[-2:] == [f"--file={folder / DUMP}", PLACES.database]
    assert shlex.split(restore)[-2:] == [f"--dbname={PLACES.database}", str(folder / DUMP)]
    for command in ("stream backup", "stream restore"):
        (line,) = [line for line in lines if command in line]
        assert shlex.split(line)[-1] == str(folder / "MAUVE-240")
