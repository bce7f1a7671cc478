"""The image runs as the Dockerfile says: read-only, as its own user, and keeps what it acknowledged in its volume."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx
import pytest

from support.container import ROOT, running
from support.service import bearer, eventually, two_free_ports

EVENTS = 400
BYTES_MAX = 1_350_000_000  # Most of it is chDB, and the base here is larger than python:3.11-slim.


@pytest.fixture
def data(tmp_path):
    """A volume as Docker creates it: with the owner and the mode of the image's folder."""
    folder = tmp_path / "volume"
    folder.mkdir(mode=0o700)
    os.chown(folder, 10_001, 10_001)
    return folder


@pytest.fixture
def settings():
    """The port that a platform chooses, among others. The network is the host's, so only loopback is used."""
    port = two_free_ports()
    return {
        "PORT": str(port),
        "MAUVE_INGEST_PORT": str(port + 1),
        "MAUVE_HOST": "127.0.0.1",
        "MAUVE_WORKERS": "1",
        "MAUVE_READ_CACHE_SECONDS": "0",
    }


def result_of(container, *command):
    done = container.run("mauve", *command, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def send(container, key, first):
    events = [{"name": "sent", "user": f"u{number}", "id": str(number)} for number in range(first, first + EVENTS)]
    reply = httpx.post(f"{container.url}/v1/events", headers=bearer(key), json=events)
    assert (reply.status_code, reply.json()["accepted"]) == (202, EVENTS)


def count(container, key):
    reply = httpx.get(f"{container.url}/v1/metrics/event_count", headers=bearer(key), params={"name": "sent"})
    rows = reply.json()["data"]
    return rows[0]["count"] if rows else 0


def test_what_was_acknowledged_is_counted_after_a_stop_and_a_start(image, data, settings):
    with running(image, data, **settings) as container:
        assert container.url.endswith(f":{settings['PORT']}")
        result_of(container, "org", "create", "Acme")
        key = result_of(container, "app", "create", "App")["sk_key"]
        eventually(lambda: httpx.get(f"{container.url}/v1/metrics/mau", headers=bearer(key)).status_code == 200)
        send(container, key, 0)
        assert container.stop() == 0, "at once, while events may still wait to be loaded"
    with running(image, data, **settings) as container:
        eventually(lambda: count(container, key) == EVENTS)
        send(container, key, EVENTS)
        eventually(lambda: count(container, key) == 2 * EVENTS)
        assert container.run(*image.settings["Healthcheck"]["Test"][1:]).stdout == "ready\n"
        assert container.stop() == 0
    assert {path.stat().st_uid for path in data.rglob("*")} == {10_001}


def test_the_service_is_confined_and_takes_its_key_from_a_file(image, data, settings):
    (data / "key").write_text(base64.b64encode(bytes(32)).decode() + "\n")
    os.chown(data / "key", 10_001, 10_001)
    with running(image, data, **settings, MAUVE_MASTER_KEY_FILE="/data/key") as container:
        status = Path(f"/proc/{container.pid}/status").read_text()
        facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert facts["Uid"].split() == ["10001"] * 4
        assert facts["NSpid"].split()[1] == "1", "the supervisor itself is process 1"
        assert {facts[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}
        assert facts["NoNewPrivs"] == "1"
        for folder in ("/", "/opt/mauve", "/app", "/etc", "/var/tmp"):
            done = container.run("touch", f"{folder}/file")
            assert "Read-only file system" in done.stderr, folder
        assert container.stop() == 0
    assert not (data / "master.key").exists()


def test_process_1_reaps_orphans(image, data, settings):
    orphaned = "import os, time\nif os.fork() == 0:\n    if os.fork() == 0: time.sleep(0.5)\n    os._exit(0)\nos.wait()"
    with running(image, data, **settings) as container:
        children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
        own = set(children.read_text().split())
        assert len(own) == 2, "the core and a worker"
        assert container.run("python3", "-c", orphaned).returncode == 0
        eventually(lambda: set(children.read_text().split()) > own)
        eventually(lambda: set(children.read_text().split()) == own)
        assert container.stop() == 0


def test_a_volume_that_belongs_to_another_user_is_explained(image, data, settings):
    os.chown(data, 0, 0)
    with (
        pytest.raises(AssertionError, match="/data belongs to user 0: run 'chown 10001 /data'"),
        running(image, data, **settings),
    ):
        pass


def test_the_image_holds_what_it_runs_and_no_more(image):
    settings = image.settings
    assert (settings["User"], settings["StopSignal"]) == ("10001:10001", "SIGTERM")
    assert not settings.get("Volumes"), "Railway refuses an image with a volume of its own"
    assert (image.root / "data").stat().st_uid == 10_001, "a new volume takes its owner from the folder"
    assert (settings["Entrypoint"], settings["Cmd"]) == (["mauve"], ["serve"]), "no shell, which would keep the signal"
    assert settings["Labels"]["org.opencontainers.image.licenses"] == "MIT"
    absent = ("opt/mauve/bin/pip", "usr/bin/pg_dump", "app/src", "build", "opt/mauve/bin/hatchling", "usr/bin/gcc")
    assert [name for name in absent if (image.root / name).exists()] == []
    assert len(list(image.root.glob("opt/mauve/lib/python3*/site-packages/mauve/openapi/site/index.html"))) == 1
    assert image.bytes < BYTES_MAX
    caches = [*image.root.glob("opt/mauve/lib/python3*/site-packages/mauve/**/__pycache__/*.pyc")]
    assert len(caches) > 100, "compiled in the build: the files are read-only later"


def test_the_dockerfile_passes_its_linter():
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
