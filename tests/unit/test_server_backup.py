"""The commands that back up servers."""

import shlex

from mauve.maintenance.server_backup import DUMP, ServerPlaces, backup_plan

PLACES = ServerPlaces(
    database="postgresql://mauve@db/mauve?sslmode=require&target_session_attrs=read-write",
    warehouse="mauve",
    on_cluster="",
    streams=("MAUVE-240",),
    nats="nats://a,nats://b",
    keep_hours=48,
)


def test_commands_may_be_given_to_a_shell_whatever_the_names_contain(tmp_path):
    folder = tmp_path / "a b"
    lines = backup_plan(PLACES, folder, "Disk('backups', 'x')").splitlines()
    (dump,) = [line for line in lines if "pg_dump" in line and "2." in line]
    (restore,) = [line for line in lines if "pg_restore" in line]
    assert shlex.split(dump)[-2:] == [f"--file={folder / DUMP}", PLACES.database]
    assert shlex.split(restore)[-2:] == [f"--dbname={PLACES.database}", str(folder / DUMP)]
    for command in ("stream backup", "stream restore"):
        (line,) = [line for line in lines if command in line]
        assert shlex.split(line)[-1] == str(folder / "MAUVE-240")


def test_postgresql_is_dumped_before_the_warehouse_is_copied(tmp_path):
    plan = backup_plan(PLACES, tmp_path, "Disk('backups', 'x')")
    places = [plan.index(word) for word in ("pg_dump", "BACKUP DATABASE", "stream backup", "pg_restore", "--servers")]
    assert places == sorted(places)
