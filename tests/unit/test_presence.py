"""How processes of one machine know how many of them share a limit.

Proves: shared-limits.
"""

import asyncio
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from functools import partial

from structlog.testing import capture_logs

from mauve.stores.limits import presence as presence_module
from mauve.stores.limits.presence import Presence, beat_in_files
from mauve.wiring.ingest import off_loop
from support.service import PATIENCE_S, eventually

OTHER = """
import sys
from functools import partial
from pathlib import Path
from mauve.stores.limits.presence import Presence, beat_in_files
presence = Presence(partial(beat_in_files, Path(sys.argv[1]), 1), is_local=True)
for _ in sys.stdin:
    print(presence.use(), flush=True)
"""


def opened(folder, process):
    return closing(Presence(partial(beat_in_files, folder, process), is_local=True))


def test_a_process_that_is_killed_no_longer_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(presence_module, "BEAT_EVERY_S", 0.05)
    monkeypatch.setattr(presence_module, "ABSENT_AFTER_S", 2.0)
    with opened(tmp_path / "accepted", 0) as presence:
        command = [sys.executable, "-c", OTHER, str(tmp_path / "accepted")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert presence.use() == 1, "the other does not use the limit: all of it is ours"
            other.stdin.write(b"use\n")
            other.stdin.flush()
            assert other.stdout.readline() == b"2\n", "it sees on its first use that another has used the limit"
            eventually(lambda: presence.use() == 2)
            other.kill()
        eventually(lambda: presence.use() == 1)


def test_a_process_that_starts_again_counts_once(tmp_path):
    with opened(tmp_path, 0) as presence:
        for _ in range(3):
            with opened(tmp_path, 1) as other:
                assert other.use() == 1
        assert presence.use() == 2


def test_a_process_that_cannot_announce_itself_logs_it_once(tmp_path, monkeypatch):
    (tmp_path / "accepted").write_text("a file")
    with capture_logs() as logs, opened(tmp_path / "accepted", 0) as presence:
        assert presence.use() == 1
        eventually(lambda: logs)
    assert [line["event"] for line in logs] == ["presence_not_announced"]


def test_the_event_loop_is_not_blocked_while_presence_is_opened_and_closed():
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
