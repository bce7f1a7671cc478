"""A process dies during a backup: the service recovers, and no partial file is left.

Proves: backup.
"""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import httpx2 as httpx
import pytest

from mauve.config import settings_from
from mauve.maintenance.backup import write_backup
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.server.admin_client import CoreConnection, pause_loader, store_operations
from mauve.wiring.backups import file_target
from mauve.wiring.bootstrap import control_parts
from mauve.wiring.maintenance import backup_sources
from support.service import (
    MAUVE,
    bearer,
    clean_environment,
    eventually,
    mauve,
    mauve_json,
    running,
    stored_events,
    token_for,
)


class Interruption:
    """Runs an action when a stage of the backup begins."""

    def __init__(self, stage, action):
        self._stage, self._action = stage, action

    def begin(self, stage, bytes_total):
        if stage == self._stage:
            self._action()

    def add(self, byte_count):
        pass


@pytest.fixture
def service(tmp_path):
    with running(tmp_path / "data", "--workers", "1", environment={"MAUVE_READ_CACHE_SECONDS": "0"}) as started:
        yield started


@pytest.fixture
def key(service):
    headers = bearer(token_for(service.data))
    return httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=headers).json()["sk_key"]


def send(service, key, user):
    events = [{"name": "view", "user": user}]
    return httpx.post(f"{service.ingest_url}/v1/events", json=events, headers=bearer(key)).status_code


def mau(service, key):
    try:
        return httpx.get(f"{service.url}/v1/metrics/mau", headers=bearer(key)).json()["data"][0]["mau"]
    except (httpx.TransportError, KeyError):
        return None


def make_backup(service, file, progress):
    settings = settings_from({"MAUVE_DATA": str(service.data)})
    sources = backup_sources(settings, lambda: pause_loader(settings))
    return write_backup(sources, file_target(settings, file), 0, "test", progress)


@pytest.mark.parametrize("stage", ["copying the queue", "copying the databases", "packing"])
def test_a_core_killed_during_a_backup_leaves_no_file_and_restarts(service, key, tmp_path, stage):
    assert send(service, key, "ann") == 202
    file = tmp_path / "backup"

    def kill():
        os.kill(service.child_pids()["core"], signal.SIGKILL)

    with pytest.raises((MaintenanceFailedError, FileNotFoundError)):
        make_backup(service, file, Interruption(stage, kill))
    assert send(service, key, "bob") == 202, "workers are not affected"
    assert {path.name for path in tmp_path.iterdir()} == {"data", "data.log"}
    eventually(lambda: mau(service, key) == 2)
    assert not (service.data / "warehouse" / "shadow").exists()
    assert mauve_json(service.data, "backup", str(file))["events"] == 2


def test_a_service_killed_during_a_backup_leaves_no_file_and_restarts(service, key, tmp_path):
    assert send(service, key, "ann") == 202

    def kill():
        for pid in [service.process.pid, *service.child_pids().values()]:
            os.kill(pid, signal.SIGKILL)

    with pytest.raises((MaintenanceFailedError, FileNotFoundError)):
        make_backup(service, tmp_path / "backup", Interruption("packing", kill))
    assert {path.name for path in tmp_path.iterdir()} == {"data", "data.log"}
    service.process.wait()
    with running(service.data, "--workers", "1") as again:
        eventually(lambda: mau(again, key) == 1)
    assert mauve_json(service.data, "backup", str(tmp_path / "backup"))["events"] == 1


def test_a_core_killed_during_an_erasure_restarts_and_erases_on_retry(service, key):
    settings = settings_from({"MAUVE_DATA": str(service.data)})
    with control_parts(settings) as parts:
        (organization,) = parts.catalog.organizations.list_all()
        (app,) = parts.catalog.apps.all_of(organization.org_id)
    for pause_s in (0.0, 0.02, 0.1):
        assert send(service, key, "ann") == 202
        erasing = threading.Thread(target=try_to_erase, args=(settings, app.public_id, "ann"))
        erasing.start()
        time.sleep(pause_s)
        os.kill(eventually(lambda: service.child_pids().get("core")), signal.SIGKILL)
        erasing.join()
        eventually(lambda: mau(service, key) == 1)
    eventually(lambda: try_to_erase(settings, app.public_id, "ann"))
    assert try_to_erase(settings, app.public_id, "ann").events == 0
    assert send(service, key, "bob") == 202
    eventually(lambda: mau(service, key) == 2)
    service.stop()
    assert sorted(user for _, _, user, _, _, _ in stored_events(service.data)) == ["", "", "", "bob"]


def try_to_erase(settings, project, user):
    try:
        with store_operations(settings) as stores:
            return stores.erase_user(project, user)
    except MaintenanceFailedError:
        return None


def test_events_sent_while_the_loader_is_paused_are_accepted_and_counted_afterwards(service, key, tmp_path):
    seen = []

    def send_and_read():
        for place in range(30):
            assert send(service, key, f"user {place}") == 202
        time.sleep(1.5)  # more than twice as long as loading usually takes
        seen.append(mau(service, key))

    made = make_backup(service, tmp_path / "backup", Interruption("copying the queue", send_and_read))
    assert seen == [0], "nothing is loaded during the pause"
    assert (made.events, made.unloaded_records) == (0, 30)
    eventually(lambda: mau(service, key) == 30)


def test_a_killed_command_does_not_block_loading(service, key, tmp_path):
    arguments = [str(MAUVE), "backup", str(tmp_path / "backup"), "--data", str(service.data)]
    command = subprocess.Popen(arguments, env=clean_environment(), stderr=subprocess.PIPE, text=True)
    assert command.stderr.readline() == "freezing\n"
    command.kill()
    command.wait()
    command.stderr.close()
    assert send(service, key, "ann") == 202
    eventually(lambda: mau(service, key) == 1)
    eventually(lambda: not (service.data / "warehouse" / "shadow").exists())
    mauve_json(service.data, "backup", str(tmp_path / "backup"))


def test_a_second_backup_at_the_same_time_is_refused(service, key, tmp_path):
    settings = settings_from({"MAUVE_DATA": str(service.data)})
    with pause_loader(settings), pytest.raises(MaintenanceRefusedError, match="another backup"):
        make_backup(service, tmp_path / "backup", Interruption("", None))


def test_a_second_backup_is_refused_even_if_the_first_has_lost_its_service(service, tmp_path):
    made = []

    def make_another():
        done = mauve(service.data, "backup", str(tmp_path / "other"))
        made.append((done.returncode, done.stderr.splitlines()[-1]))

    lock = os.open(service.data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a backup does
        make_another()
    finally:
        os.close(lock)
    make_backup(service, tmp_path / "backup", Interruption("packing", make_another))
    assert made == [(2, "mauve: another backup is in progress: wait for it to finish")] * 2
    assert (tmp_path / "backup").exists()
    assert not (tmp_path / "other").exists()


def test_the_place_of_a_backup_never_holds_copies_of_the_databases(service, tmp_path):
    """They are not encrypted, and a killed command leaves them: they stay in the data directory."""
    (tmp_path / "elsewhere").mkdir()
    seen = []

    def look():
        seen.extend(path.name for path in (tmp_path / "elsewhere").rglob("*"))
        assert (service.data / "backing-up" / "catalog.db").exists()

    make_backup(service, tmp_path / "elsewhere" / "backup", Interruption("packing", look))
    assert seen == [".backup.part"]
    assert not (service.data / "backing-up").exists()


def test_a_stop_does_not_wait_for_a_backup(service, key, tmp_path):
    settings = settings_from({"MAUVE_DATA": str(service.data)})
    with pause_loader(settings) as pause:
        assert service.stop() == 0
        assert "stop_forced" not in service.log()
        with pytest.raises(MaintenanceFailedError):
            pause.release()


# In a separate process: the embedded engine opens only one path per process.
CORE_WITH_SHORT_PAUSE = """
import asyncio, sys
from prometheus_client import CollectorRegistry
from mauve.wiring.bootstrap import control_parts
from mauve.wiring.maintenance import backup_sources
from mauve.wiring.warehouse import open_load_parts
from mauve.config import settings_from
from mauve.maintenance.errors import MaintenanceFailedError
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.server import admin_client, admin_socket

settings = settings_from({"MAUVE_DATA": sys.argv[1]})
loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(CollectorRegistry()))
admin_socket.PAUSE_S_MAX = 0.1

def hang():
    core = admin_client.CoreConnection(settings.data)
    core.freeze()
    loading.step()  # It waits for the end of the pause.
    try:
        core.resume()
    except MaintenanceFailedError:
        print("loading resumed, and the command got an error")

async def main():
    server = admin_socket.AdminSocket(settings, loading)
    await server.open()
    await asyncio.to_thread(hang)
    await server.close()

asyncio.run(main())
loading.close()
"""


def test_a_hung_command_does_not_pause_loading_forever(settings):
    program = [sys.executable, "-c", CORE_WITH_SHORT_PAUSE, str(settings.data)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("loading resumed, and the command got an error\n"), done.stderr
    assert not (settings.data / "warehouse" / "shadow").exists()
    assert not (settings.data / "core.sock").exists()


def test_an_unknown_request_closes_the_connection(service):
    stopped = pytest.raises(MaintenanceFailedError, match="the core stopped or timed out")
    with closing(CoreConnection(service.data)) as core, stopped:
        core.send("dance")
    assert httpx.get(f"{service.url}/readyz").status_code == 200
