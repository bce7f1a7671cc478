"""The supervisor reads a child's heartbeats, whatever else the child writes, and says how one ended early."""

import asyncio
import re
import sys
import tempfile
from asyncio.subprocess import PIPE

import pytest

from mauve.server import child_process
from support.service import PATIENCE_S

WRITES_TOO_MUCH = """
import sys
for long in ("x" * 70_000, "y" * 5_000_000):
    print(long)
    print(".")
print(".", flush=True)
sys.stdin.read()
"""


def test_heartbeats_are_read_after_a_line_that_is_too_long():
    async def main():
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITES_TOO_MUCH, stdin=PIPE, stdout=PIPE)
        with tempfile.TemporaryFile() as stacks:
            child = child_process.ChildProcess("a child", process, stacks, hang_s=0)
            ended = asyncio.create_task(child.ended())
            try:
                async with asyncio.timeout(PATIENCE_S):
                    while child.beats < 3:  # noqa: ASYNC110 - it only counts
                        await asyncio.sleep(0.01)
                process.stdin.close()
                await ended
            finally:
                child.kill()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os; os.kill(os.getpid(), 11)", "a child was killed by SIGSEGV before it was ready: check whether"),
        ("raise SystemExit(3)", "a child exited before it was ready (exit code 3): see the log above"),
    ],
)
def test_an_end_without_a_report_is_explained(program, said):
    async def main():
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=PIPE, stdout=PIPE)
        with tempfile.TemporaryFile() as stacks:
            await child_process.ChildProcess("a child", process, stacks, hang_s=0).ready()

    with pytest.raises(child_process.ServeRefusedError, match=re.escape(said)):
        asyncio.run(main())
