"""`mauve ready`, which containers run as their health check."""

import os
import signal

import pytest

from support.service import eventually, freeze, mauve, mauve_json, running

pytestmark = pytest.mark.embedded


def test_a_running_service_is_ready_until_it_is_about_to_stop(tmp_path):
    data = tmp_path / "data"
    absent = mauve(data, "ready")
    assert (absent.returncode, absent.stdout) == (1, "not ready: no service runs on this data directory\n")
    assert not data.exists()
    with running(data, "--host", "0.0.0.0", environment={"MAUVE_DRAIN_SECONDS": "120"}) as service:
        assert mauve(data, "ready").stdout == "ready\n"
        assert mauve_json(data, "ready")["engines"]["warehouse"] == "ok"
        service.process.send_signal(signal.SIGTERM)
        stopping = eventually(lambda: (done := mauve(data, "ready")).returncode == 1 and done)
        assert stopping.stdout.startswith("not ready: this process is about to stop")
    assert mauve(data, "ready").returncode == 1


def test_a_service_that_does_not_answer_is_not_ready(tmp_path):
    with running(tmp_path / "data", "--workers", "1") as service:
        core = service.child_pids()["core"]
        freeze(core)
        try:
            done = mauve(service.data, "ready")
        finally:
            os.kill(core, signal.SIGCONT)
        assert done.returncode == 1
        assert "does not answer" in done.stdout
