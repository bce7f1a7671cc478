"""`mauve ready`, which containers run as their health check."""

import os
import signal

import pytest

from support.service import eventually, freeze, mauve, mauve_json, running

pytestmark = pytest.mark.embedded


def test_a_service_is_ready_while_it_runs_and_answers(tmp_path):
    data = tmp_path / "data"
    absent = mauve(data, "ready")
    assert (absent.returncode, absent.stdout) == (1, "not ready: no service runs on this data directory\n")
    assert not data.exists()
    with running(data, "--host", "0.0.0.0", environment={"MAUVE_DRAIN_SECONDS": "120"}) as service:
        assert mauve(data, "ready").stdout == "ready\n"
        assert mauve_json(data, "ready")["engines"]["warehouse"] == "ok"
        core = service.child_pids()["core"]
        freeze(core)
        try:
            hanging = mauve(data, "ready")
        finally:
            os.kill(core, signal.SIGCONT)
        assert (hanging.returncode, "does not answer" in hanging.stdout) == (1, True)
        eventually(lambda: mauve(data, "ready").returncode == 0)
        service.process.send_signal(signal.SIGTERM)
        stopping = eventually(lambda: (done := mauve(data, "ready")).returncode == 1 and done)
        assert stopping.stdout.startswith("not ready: this process is about to stop")
    assert mauve(data, "ready").returncode == 1
