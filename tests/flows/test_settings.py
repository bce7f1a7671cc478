"""Settings of hosting platforms: the port that they choose, and secrets that they mount as files."""

import base64
import signal
import subprocess

import httpx2 as httpx
import pytest

from mauve.config import SECRETS
from support.service import MAUVE, PATIENCE_S, clean_environment, mauve, two_free_ports

pytestmark = pytest.mark.embedded


def test_the_service_listens_on_the_port_of_the_platform_with_a_key_from_a_file(tmp_path):
    """The key is in no other file, so the workers and the core have read it from there."""
    port = two_free_ports()
    (tmp_path / "key").write_text(base64.b64encode(bytes(32)).decode() + "\n")
    environment = clean_environment(PORT=str(port), MAUVE_MASTER_KEY_FILE=str(tmp_path / "key"))
    data = tmp_path / "data"
    service = subprocess.Popen(
        [MAUVE, "serve", "--data", data, "--ingest-port", "0", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with service:
        assert service.stdout.readline(), "the service did not start"
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=PATIENCE_S) == 0
    assert not (data / "master.key").exists()


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_cannot_be_read_is_one_sentence_and_no_start(tmp_path, name):
    done = mauve(tmp_path / "data", "serve", **{f"{name}_FILE": str(tmp_path / "absent")})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{name}_FILE cannot be read (No such file or directory)" in done.stderr
    assert not (tmp_path / "data").exists()


def test_the_help_lists_the_port_and_every_secret_that_a_file_may_hold(tmp_path):
    words = mauve(tmp_path / "data", "serve", "--help").stdout.split()
    assert "PORT" in words
    assert {f"{name}_FILE" for name in SECRETS} <= {word.strip(",") for word in words}
