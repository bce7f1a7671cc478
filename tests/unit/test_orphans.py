import asyncio
import ctypes
import os
import subprocess
import sys

import pytest

from mauve.server.supervisor import keep_reaping, reap
from support.service import eventually, is_alive

PR_SET_CHILD_SUBREAPER = 36
ORPHAN = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', '']).pid)"


@pytest.fixture
def subreaper():
    """Let this process inherit orphans, as process 1 does."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1) == 0
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0)


def exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_orphan_is_reaped_and_a_child_of_our_own_keeps_its_exit_code(subreaper):
    orphan = int(subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, check=True).stdout)
    own = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    eventually(lambda: not is_alive(orphan) and not is_alive(own.pid))
    reap([own.pid, orphan])
    assert exists(orphan), "a zombie until it is reaped"

    def is_reaped():
        reap([own.pid])
        return own.poll() is not None and not exists(orphan)

    eventually(is_reaped)
    assert own.returncode == 7


def test_only_process_1_reaps():
    asyncio.run(asyncio.wait_for(keep_reaping(list), timeout=60))  # It returns at once.
