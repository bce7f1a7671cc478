"""Commands in forks of one process that has the program in memory: real processes without a second of imports each.

`python command_forks.py FD` is that process. It forks for every order that comes through the socket, and ends with the
tests that started it.
"""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ORDER_BYTES_MAX = 1 << 20
_FDS = 4  # standard input, output and error, and where the exit code is told


def run(
    arguments: Sequence[str], *, stdin: str, env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess:
    """Run a command to its end, as `subprocess.run` does."""
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as warned:
        given.write(stdin)
        given.seek(0)
        code = _exit_code([list(arguments), dict(env), str(Path.cwd())], [given, told, warned], timeout_s)
        texts = []
        for file in (told, warned):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(arguments, code, *texts)


def _exit_code(order: list, files: list, timeout_s: float) -> int:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            fds = [*(file.fileno() for file in files), theirs.fileno()]
            socket.send_fds(_forking_process(), [json.dumps(order).encode()], fds)
        ours.settimeout(timeout_s)
        return int(ours.recv(10))


@cache
def _forking_process() -> socket.socket:
    """Start the process that forks, once for all tests of this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()])

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(orders: socket.socket) -> None:
    from mauve.cli.main import main  # noqa: PLC0415 - the side of the tests does without it

    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, fds, _, _ = socket.recv_fds(orders, ORDER_BYTES_MAX, _FDS)
        if not text:
            return
        if os.fork() == 0:
            orders.close()
            _obey(json.loads(text), fds, main)
        for fd in fds:
            os.close(fd)


def _obey(order: list, fds: list[int], main) -> None:
    """Run the command in a fork, and tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv, environment, folder = order
    result = fds.pop()
    pid = os.fork()
    if pid == 0:
        os.close(result)
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.exit(main())
    _, status = os.waitpid(pid, 0)
    os.write(result, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
