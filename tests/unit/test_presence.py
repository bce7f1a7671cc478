"""How processes of one machine know how many of them live and share a limit.

Proves: shared-limits.
"""

import asyncio
import fcntl
import subprocess
import sys
import threading
from contextlib import closing, contextmanager

from structlog.testing import capture_logs

from mauve.stores.limits import presence_files as file_presence
from mauve.stores.limits.presence_files import FilePresence
from mauve.wiring.ingest import off_loop
from support.service import PATIENCE_S, eventually

OTHER = """
import sys
from pathlib import Path
from mauve.stores.limits.presence_files import FilePresence
presence = FilePresence(Path(sys.argv[1]), 1)
print(presence.live(), flush=True)
for _ in sys.stdin:
    presence.use()
"""


def test_a_process_that_is_killed_no_longer_counts(tmp_path):
    with closing(FilePresence(tmp_path / "accepted", 0)) as presence:
        assert presence.live() == 1
        command = [sys.executable, "-c", OTHER, str(tmp_path / "accepted")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout.readline() == b"2\n", "it knows the others at once"
            eventually(lambda: presence.live() == 2)
            assert presence.use() == 1, "the other is not used: the whole limit is ours"
            other.stdin.write(b"use\n")
            other.stdin.flush()
            eventually(lambda: presence.use() == 2)
            other.kill()
        eventually(lambda: presence.live() == presence.use() == 1)


def test_a_process_sees_on_its_first_use_that_another_has_used_the_limit(tmp_path, monkeypatch):
    with closing(FilePresence(tmp_path, 0)) as first:
        monkeypatch.setattr(file_presence, "LOOK_EVERY_S", 3600)
        with closing(FilePresence(tmp_path, 1)) as second:
            assert first.use() == 1
            assert second.use() == 2


def test_a_process_that_starts_again_counts_once(tmp_path):
    with closing(FilePresence(tmp_path / "accepted", 0)) as presence:
        for _ in range(3):
            with closing(FilePresence(tmp_path / "accepted", 1)):
                eventually(lambda: presence.live() == 2)
        eventually(lambda: presence.live() == 1)


def test_a_process_that_cannot_lock_its_file_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(file_presence, "LOCK_S_MAX", 0.05)
    with (tmp_path / "000.alive").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with capture_logs() as logs, closing(FilePresence(tmp_path, 0)):
            pass
    assert [line["event"] for line in logs] == ["presence_not_announced"]


def test_the_event_loop_goes_on_while_presence_is_opened_and_closed():
    steps = {"open": threading.Event(), "close": threading.Event()}

    @contextmanager
    def slow():
        assert steps["open"].wait(PATIENCE_S)
        yield "opened"
        assert steps["close"].wait(PATIENCE_S)

    async def use():
        loop = asyncio.get_running_loop()
        loop.call_later(0, steps["open"].set)
        async with off_loop(slow()) as opened:
            loop.call_later(0, steps["close"].set)
        return opened

    assert asyncio.run(use()) == "opened"
