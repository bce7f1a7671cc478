"""Backups leave the machine: into a bucket of a real S3 server, and back.

Proves: bucket.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import httpx2 as httpx
import pytest
from botocore.exceptions import ClientError

from mauve.access.vault import new_master_key
from mauve.config import settings_from
from mauve.core.secret import Secret
from mauve.maintenance.backup_schedule import BackupState
from mauve.stores.backups import BackupStoreError, s3
from mauve.stores.backups.s3 import PART_BYTES_MIN, Bucket, S3BackupStore
from mauve.wiring.backups import save_backup_state
from mauve.wiring.bootstrap import control_parts
from support.s3 import BUCKET, CREDENTIALS, FailingProxy, S3Server, settings_for
from support.service import MAUVE, PATIENCE_S, clean_environment, eventually, mauve, running, two_free_ports

pytestmark = pytest.mark.embedded
KEY = new_master_key()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with S3Server(tmp_path_factory.mktemp("s3") / "server") as started:
        yield started


@pytest.fixture
def data(prepared, tmp_path):
    """A data directory that was never served, whose master key is in the environment."""
    shutil.copytree(prepared[0], tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def prefix(request):
    return request.node.name.replace("[", "-").replace("]", "")


@pytest.fixture
def run(server, data):
    """Run a command with the settings of the bucket; return its JSON result."""

    def run(*arguments, at=data, **environment):
        done = mauve(at, *arguments, "--json", **settings_for(server.port), **environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def refused(server, data):
    """Run a command that must fail; return its sentence."""

    def refused(*arguments, at=data, **environment):
        done = mauve(at, *arguments, **(settings_for(server.port) | environment))
        assert done.returncode in {1, 2}, done.stdout
        assert done.stdout == ""
        sentence = done.stderr.splitlines()[-1]
        assert sentence.startswith("mauve: ")
        assert "canary" not in done.stderr
        return sentence

    return refused


def master_key(data):
    return {"MAUVE_MASTER_KEY": (data / "master.key").read_text().strip()}


def address(prefix):
    return f"s3://{BUCKET}/{prefix}"


class TestCommands:
    def test_a_backup_is_one_object_that_is_listed_and_restored(self, run, server, prefix, data, tmp_path):
        made = run("backup", address(prefix))
        assert server.names(prefix) == [made["file"].removeprefix(f"s3://{BUCKET}/")]
        assert made["bytes"] == len(server.content(server.names(prefix)[0]))
        (listed,) = run("backup", "list", address(prefix))
        assert made["file"] == f"{address(prefix)}/{listed['name']}"
        assert {name: listed[name] for name in ("created_at", "bytes", "is_encrypted")} == {
            "created_at": made["created_at"],
            "bytes": made["bytes"],
            "is_encrypted": False,
        }
        restored = run("restore", made["file"], at=tmp_path / "copy")
        assert restored["created_at"] == made["created_at"]
        assert (tmp_path / "copy" / "master.key").read_bytes() == (data / "master.key").read_bytes()
        assert run("doctor", at=tmp_path / "copy")["ok"] is True
        assert not [path for path in data.iterdir() if path.name == "backing-up"]

    def test_the_newest_under_a_prefix_is_restored_and_old_ones_are_removed(self, run, server, prefix, tmp_path):
        server.put(f"{prefix}/notes.txt", b"mine")
        first, second, third = (run("backup", address(prefix), "--keep", "2") for _ in range(3))
        names = [each["name"] for each in run("backup", "list", address(prefix))]
        assert [f"{address(prefix)}/{name}" for name in names] == [third["file"], second["file"]]
        assert f"{prefix}/notes.txt" in server.names(prefix), "only backups are removed"
        restored = run("restore", address(prefix), at=tmp_path / "copy")
        assert restored["created_at"] == third["created_at"] > first["created_at"]

    def test_a_downloaded_object_is_a_backup_file(self, run, server, prefix, data, tmp_path):
        made = run("backup", address(prefix), "--encrypt", **master_key(data))
        (tmp_path / "download").write_bytes(server.content(made["file"].removeprefix(f"s3://{BUCKET}/")))
        restored = run("restore", str(tmp_path / "download"), at=tmp_path / "copy", **master_key(data))
        assert restored["created_at"] == made["created_at"]

    def test_credentials_may_be_settings_of_mauve_and_a_file(self, server, prefix, data, tmp_path):
        (tmp_path / "secret").write_text(CREDENTIALS["AWS_SECRET_ACCESS_KEY"] + "\n")
        own = {
            "MAUVE_BACKUP_ENDPOINT": f"http://127.0.0.1:{server.port}",
            "MAUVE_BACKUP_REGION": "us-east-1",
            "MAUVE_BACKUP_ACCESS_KEY_ID": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "MAUVE_BACKUP_SECRET_ACCESS_KEY_FILE": str(tmp_path / "secret"),
            "MAUVE_BACKUP_URL": address(prefix),
        }
        done = mauve(data, "backup", **own)
        assert done.returncode == 0, done.stderr
        assert [line.partition(",")[0] for line in done.stderr.splitlines()] == [
            *("freezing", "copying the queue", "copying the databases", "packing")
        ]
        assert len(server.names(prefix)) == 1


class TestEncryption:
    @pytest.fixture
    def key(self, data):
        return master_key(data)

    @pytest.fixture
    def made(self, run, prefix, key):
        """Return the key of an encrypted backup in the bucket."""
        return run("backup", address(prefix), "--encrypt", **key)["file"].removeprefix(f"s3://{BUCKET}/")

    def assert_refused(self, refused, made, tmp_path, *words, **environment):
        copy = tmp_path / "copy"
        sentence = refused("restore", f"s3://{BUCKET}/{made}", at=copy, **environment)
        assert [word for word in words if word not in sentence] == []
        assert not copy.exists()
        assert not [path for path in tmp_path.iterdir() if "restoring" in path.name]

    def test_it_is_restored_with_the_master_key_which_it_does_not_hold(self, run, server, made, key, tmp_path):
        content = server.content(made)
        assert made.endswith(".mauve.age")
        assert content.startswith(b"age-encryption.org/v1\n")
        run("restore", f"s3://{BUCKET}/{made}", at=tmp_path / "copy", **key)
        assert not (tmp_path / "copy" / "master.key").exists()
        assert run("doctor", at=tmp_path / "copy", **key)["ok"] is True

    def test_a_key_that_was_rotated_still_opens_it(self, run, made, key, tmp_path):
        both = {"MAUVE_MASTER_KEY": f"{KEY},{key['MAUVE_MASTER_KEY']}"}
        run("restore", f"s3://{BUCKET}/{made}", at=tmp_path / "copy", **both)

    def test_without_a_key_outside_the_data_directory_none_is_made(self, refused, server, prefix):
        sentence = refused("backup", address(prefix), "--encrypt")
        assert "keep a copy of master.key away from this machine" in sentence
        assert "MAUVE_MASTER_KEY" in refused("backup", address(prefix), MAUVE_BACKUP_ENCRYPT="1")
        assert "master key does not match the data" in refused(
            "backup", address(prefix), "--encrypt", MAUVE_MASTER_KEY=KEY
        )
        assert server.names(prefix) == []

    def test_no_key_and_a_wrong_key_are_refused(self, refused, made, tmp_path):
        self.assert_refused(refused, made, tmp_path, "is encrypted", "MAUVE_MASTER_KEY")
        self.assert_refused(refused, made, tmp_path, "another master key", MAUVE_MASTER_KEY=KEY)

    def test_damage_is_refused_and_leaves_nothing(self, run, refused, server, made, key, tmp_path):
        whole = server.content(made)
        middle = len(whole) // 2
        run("backup", str(tmp_path / "plain"))
        damaged = {
            "cut": whole[:-1],
            "cut between chunks": whole[: len(whole) - (len(whole) - whole.index(b"\n---")) % 65552],
            "flipped": whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :],
            "header": whole[:30] + b"?" + whole[31:],
            "empty": b"",
        }
        for content in damaged.values():
            server.put(made, content)
            self.assert_refused(refused, made, tmp_path, "use another copy", **key)
        server.put(made, (tmp_path / "plain").read_bytes())
        self.assert_refused(refused, made, tmp_path, "not encrypted", **key)

    def test_an_older_backup_under_the_name_of_a_newer_one_is_refused(
        self, run, refused, server, prefix, made, key, tmp_path
    ):
        newer = run("backup", address(prefix), "--encrypt", **key)["file"].removeprefix(f"s3://{BUCKET}/")
        server.put(newer, server.content(made))
        self.assert_refused(refused, newer, tmp_path, "renamed or replaced", **key)

    def test_a_planted_plain_backup_is_refused_if_all_should_be_encrypted(self, run, refused, prefix, key, tmp_path):
        planted = run("backup", address(prefix))["file"].removeprefix(f"s3://{BUCKET}/")
        self.assert_refused(refused, planted, tmp_path, "not encrypted", MAUVE_BACKUP_ENCRYPT="1", **key)


class TestRefusals:
    def test_each_mistake_has_a_sentence(self, refused, tmp_path):
        away = {"MAUVE_BACKUP_ENDPOINT": "http://127.0.0.1:1"}
        assert "there is no bucket missing" in refused("backup", "s3://missing/x")
        assert "refuses these credentials" in refused("backup", address("x"), AWS_ACCESS_KEY_ID="other")
        assert "does not answer" in refused("backup", "list", address("x"), **away)
        assert "s3://BUCKET/PREFIX" in refused("backup", "s3:/typo")
        assert "there is no backup in" in refused("restore", address("nothing"), at=tmp_path / "copy")
        missing = address("x/mauve-20260101T000000000Z.mauve")
        assert "there is no file" in refused("restore", missing, at=tmp_path / "copy")
        assert "MAUVE_BACKUP_URL" in refused("backup")
        assert "MAUVE_BACKUP_EVERY must be" in refused("backup", MAUVE_BACKUP_EVERY="daily")
        assert not (tmp_path / "copy").exists()

    def test_servers_are_backed_up_another_way(self, refused):
        url = {"MAUVE_DATABASE_URL": "postgresql://u:canary@127.0.0.1:1/d", "MAUVE_MASTER_KEY": KEY}
        assert "mauve backup --plan" in refused("backup", MAUVE_BACKUP_URL=address("x"), **url)


def store_at(port, prefix):
    name, secret, region = CREDENTIALS.values()
    return S3BackupStore(Bucket(BUCKET, f"{prefix}/", f"http://127.0.0.1:{port}", region, name, Secret(secret)))


NAME = "mauve-20261116T020000000Z.mauve"
CONTENT = bytes(range(256)) * (2 * PART_BYTES_MIN // 256) + b"the rest"


class Failures:
    """Fails the first requests that match, each in one of the given ways."""

    def __init__(self, method, word, *ways):
        self._method, self._word = method, word
        self.ways = [*ways]
        self._lock = threading.Lock()

    def __call__(self, method, path):
        with self._lock:
            return self.ways.pop(0) if self.ways and method == self._method and self._word in path else None


class TestConnections:
    """Uploads of several parts, over connections that fail."""

    def test_cut_and_refused_parts_are_sent_again(self, server, prefix):
        failures = Failures("PUT", "partNumber=2", "cut", "busy", "cut")
        with FailingProxy(server.port, failures) as proxy, store_at(proxy.port, prefix).writing(NAME, 0) as file:
            file.write(CONTENT)
        assert failures.ways == []
        assert server.content(f"{prefix}/{NAME}") == CONTENT
        assert server.uploads(prefix) == []

    def test_a_connection_that_stays_away_leaves_nothing(self, server, prefix):
        failures = Failures("PUT", "partNumber=2", *["cut"] * 20)
        with (
            FailingProxy(server.port, failures) as proxy,
            pytest.raises(BackupStoreError, match="try again"),
            store_at(proxy.port, prefix).writing(NAME, 0) as file,
        ):
            file.write(CONTENT)
        assert server.names(prefix) == []
        assert server.uploads(prefix) == [], "the upload is given up"

    def test_cut_reads_are_repeated(self, server, prefix):
        server.put(f"{prefix}/{NAME}", CONTENT)
        failures = Failures("GET", NAME, "half", "busy", "half")
        with FailingProxy(server.port, failures) as proxy, store_at(proxy.port, prefix).reading(NAME) as file:
            assert file.read() == CONTENT
        assert failures.ways == []

    def test_an_object_that_is_replaced_while_it_is_read_is_an_error(self, server, prefix):
        server.put(f"{prefix}/{NAME}", CONTENT)
        store = store_at(server.port, prefix)
        with store.reading(NAME) as file:
            file.read(10)
            server.put(f"{prefix}/{NAME}", CONTENT[1:])
            with pytest.raises(ClientError, match=r"412|PreconditionFailed"):
                file.read()

    def test_a_writer_that_raises_leaves_nothing(self, server, prefix):
        with pytest.raises(ZeroDivisionError), store_at(server.port, prefix).writing(NAME, 0) as file:
            file.write(CONTENT + bytes(1 // (len(CONTENT) - len(CONTENT))))
        assert (server.names(prefix), server.uploads(prefix)) == ([], [])

    def test_only_old_unfinished_uploads_of_the_same_place_are_swept(self, server, prefix):
        store = store_at(server.port, prefix)
        keys = [f"{prefix}/{NAME}", f"{prefix}/other", f"{prefix}/deeper/{NAME}"]
        for key in keys:
            server.client.create_multipart_upload(Bucket=BUCKET, Key=key)
        assert store.sweep(0) == 0
        assert store.sweep(2**42) == 1
        assert sorted(server.uploads(prefix)) == sorted(keys[1:])

    def test_a_list_leaves_out_what_is_deeper_and_ends(self, server, prefix, monkeypatch):
        """The server leaves it out: a bucket may hold millions of other objects."""
        server.put(f"{prefix}/{NAME}", b"content")
        server.put(f"{prefix}/deeper/{NAME}", b"content")
        asked = []
        with FailingProxy(server.port, lambda _method, path: asked.append(path)) as proxy:
            store = store_at(proxy.port, prefix)
            assert [each.name for each in store.list()] == [NAME]
            store.sweep(0)
            assert len(asked) == 2
            assert all("delimiter=%2F" in path for path in asked)
            monkeypatch.setattr(s3, "PAGES_MAX", 0)
            with pytest.raises(BackupStoreError, match="a prefix of its own"):
                store.list()


class HeldParts:
    """Holds every part of an upload until it is told to go on; then cuts the connection.

    A part that is passed on after its upload was given up might begin it again.
    """

    def __init__(self):
        self.are_held, self.go_on = threading.Event(), threading.Event()

    def __call__(self, method, path):
        if method != "PUT" or "partNumber" not in path:
            return None
        self.are_held.set()
        self.go_on.wait()
        return "cut"


def test_a_killed_command_leaves_nothing_that_looks_like_a_backup(server, prefix, data, run, tmp_path):
    """The command is killed with an upload begun, and stopped in another run, which gives the upload up."""
    parts = HeldParts()
    with FailingProxy(server.port, parts) as proxy:
        environment = clean_environment(**settings_for(proxy.port))
        for signal_, unfinished in ((signal.SIGKILL, 1), (signal.SIGTERM, 1)):
            parts.are_held.clear()
            parts.go_on.clear()
            arguments = [str(MAUVE), "backup", address(prefix), "--data", str(data)]
            command = subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL)
            assert parts.are_held.wait(PATIENCE_S)
            command.send_signal(signal_)
            if signal_ == signal.SIGTERM:
                parts.go_on.set()
            assert command.wait(PATIENCE_S) != 0
            parts.go_on.set()
            assert [name for name in server.names(prefix) if name.endswith(".mauve")] == []
            assert len(server.uploads(prefix)) == unfinished
    assert run("backup", "list", address(prefix)) == []
    made = run("backup", address(prefix))
    assert run("restore", address(prefix), at=tmp_path / "copy")["created_at"] == made["created_at"]
    assert store_at(server.port, prefix).sweep(2**42) == 1


def commands_on(data):
    """Return the processes that make a scheduled backup of a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            found += [int(path.parent.name)] * ({"mauve.cli.scheduled_backup", str(data)} <= {*words})
    return found


class TestSchedule:
    @pytest.fixture
    def settings(self, server, prefix):
        return settings_for(server.port) | {"MAUVE_BACKUP_URL": address(prefix), "MAUVE_BACKUP_EVERY": "24h"}

    def finding(self, data, settings):
        done = mauve(data, "doctor", "--json", **settings)
        (found,) = [each for each in json.loads(done.stdout)["checks"] if each["name"] == "backups"]
        return found

    def test_the_service_makes_one_at_its_start_and_none_at_the_next(self, server, prefix, settings, data, tmp_path):
        port = two_free_ports()
        environment = settings | {"MAUVE_METRICS_PORT": str(port)}
        with running(data, "--workers", "1", environment=environment) as service:
            eventually(lambda: server.names(prefix))
            eventually(lambda: "backup_made" in service.log())
            metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
            age = next(line for line in metrics.splitlines() if line.startswith("mauve_backup_age_seconds "))
            assert float(age.split()[1]) >= 0
            assert "mauve_backup_failures_total 0.0" in metrics
            eventually(lambda: self.finding(data, settings)["detail"].startswith("the last is 0.0 hours old"))
        with running(data, "--workers", "1", environment=settings) as service:
            eventually(lambda: httpx.get(f"{service.url}/readyz").status_code == 200)
            found = self.finding(data, settings)
        assert found["ok"] is True
        assert len(server.names(prefix)) == 1
        done = mauve(tmp_path / "copy", "restore", address(prefix), **settings)
        assert done.returncode == 0, done.stderr

    def test_a_failure_is_logged_and_shown_with_what_to_do(self, settings, data):
        settings = settings | {"MAUVE_BACKUP_URL": "s3://missing/x"}
        with running(data, "--workers", "1", environment=settings) as service:
            eventually(lambda: "backup_failed" in service.log())
            assert "there is no bucket missing" in service.log()
            found = eventually(lambda: not (found := self.finding(data, settings))["ok"] and found)
        assert "failed 1 times since" in found["detail"]
        assert "mauve backup" in found["advice"]

    def test_a_stop_ends_a_backup_which_is_given_up(self, server, prefix, settings, data):
        parts = HeldParts()
        with FailingProxy(server.port, parts) as proxy:
            environment = settings | settings_for(proxy.port)
            with running(data, "--workers", "1", environment=environment) as service:
                assert parts.are_held.wait(PATIENCE_S)
                assert service.stop() == 0
                assert "backup_failed" not in service.log()
            parts.go_on.set()
        assert server.names(prefix) == []
        assert self.finding(data, settings)["detail"] == "none so far"

    def test_a_backup_ends_with_a_core_that_is_killed_and_the_next_core_waits(self, server, prefix, settings, data):
        parts = HeldParts()
        with FailingProxy(server.port, parts) as proxy:
            environment = settings | settings_for(proxy.port)
            with running(data, "--workers", "1", environment=environment) as service:
                assert parts.are_held.wait(PATIENCE_S)
                (command,) = commands_on(data)
                core = service.child_pids()["core"]
                os.kill(core, signal.SIGKILL)
                eventually(lambda: command not in commands_on(data))
                eventually(lambda: service.child_pids().get("core", core) != core)
                eventually(lambda: mauve(data, "ready").returncode == 0)
                assert commands_on(data) == []
            parts.go_on.set()
        assert server.names(prefix) == []

    def test_the_doctor_complains_if_none_was_ever_made(self, settings, data):
        with control_parts(settings_from({"MAUVE_DATA": str(data)})) as parts:
            save_backup_state(parts, BackupState(settings["MAUVE_BACKUP_URL"], since=0))
        found = self.finding(data, settings)
        assert (found["ok"], found["detail"]) == (False, "none so far")
        assert "mauve serve" in found["advice"]

    def test_options_may_come_before_the_subcommand(self, data, tmp_path):
        (tmp_path / "kept").mkdir()
        for arguments in (["--json", "list"], ["--data", str(data), "--json", "list"]):
            done = mauve(data, "backup", *arguments, str(tmp_path / "kept"))
            assert (done.returncode, json.loads(done.stdout)) == (0, []), done.stderr
        done = mauve(data, "backup", "--json", str(tmp_path / "list"))
        assert json.loads(done.stdout)["file"] == str(tmp_path / "list"), "a path is a target"

    def test_a_list_has_every_backup_whatever_its_name_and_nothing_else(self, data, tmp_path, settings):
        folder = tmp_path / "kept"
        folder.mkdir()
        (folder / "notes.txt").write_text("not a backup")
        (folder / "other.age").write_text("not a backup either")
        key = (data / "master.key").read_text().strip()
        environment = settings | {"MAUVE_BACKUP_URL": str(folder), "MAUVE_MASTER_KEY": key}
        for arguments in ([str(folder / "before-upgrade")], [str(folder / "secret.age"), "--encrypt"], []):
            done = mauve(data, "backup", *arguments, **environment)
            assert done.returncode == 0, done.stderr
        listed = json.loads(mauve(data, "backup", "list", "--json", **environment).stdout)
        assert [each["name"] for each in listed][1:] == ["secret.age", "before-upgrade"], "newest first"
        assert [each["created_at"] for each in listed] == sorted((each["created_at"] for each in listed), reverse=True)
        assert [each["is_encrypted"] for each in listed] == [False, True, False]
        without_key = settings | {"MAUVE_BACKUP_URL": str(folder)}
        listed = json.loads(mauve(data, "backup", "list", "--json", **without_key).stdout)
        assert {each["name"]: each["created_at"] for each in listed}["secret.age"] is None, "only the key tells"

    def test_a_directory_keeps_as_many_as_asked(self, data, tmp_path, settings):
        (tmp_path / "kept").mkdir()
        settings = settings | {"MAUVE_BACKUP_URL": str(tmp_path / "kept"), "MAUVE_BACKUP_KEEP": "2"}
        for _ in range(3):
            done = mauve(data, "backup", **settings)
            assert done.returncode == 0, done.stderr
        listed = json.loads(mauve(data, "backup", "list", "--json", **settings).stdout)
        assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == sorted(each["name"] for each in listed)
        assert len(listed) == 2
        done = mauve(tmp_path / "copy", "restore", str(tmp_path / "kept"), "--json", **settings)
        assert json.loads(done.stdout)["created_at"] == listed[0]["created_at"]
