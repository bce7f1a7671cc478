"""Run commands in forks of one process that has imported the program: real processes without the import time.

`python command_forks.py FD` is that process. It forks for every request on the socket, and ends with the tests.
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
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

REQUEST_BYTES_MAX = 1 << 20
_FDS = 4  # standard input, output and error, and a socket for the exit code
# What most commands import once they know their settings. Not the embedded warehouse: it starts threads, which a fork
# does not have.
_IMPORTED_LATER = (
    *("alembic.migration", "alembic.operations", "alembic.script", "psycopg", "nats.aio.client", "clickhouse_connect"),
    *("mauve.wiring.bootstrap", "mauve.server.doctor"),
    *(f"mauve.cli.{name}" for name in ("app", "credentials", "failures", "org", "user")),
)


def run(
    arguments: Sequence[str], *, stdin: str, env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command and wait for it, as `subprocess.run` does."""
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        code = _exit_code([list(arguments), dict(env), str(Path.cwd())], [given, out, err], timeout_s)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(arguments, code, *texts)


def _exit_code(request: list[Any], files: list[IO[Any]], timeout_s: float) -> int:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            fds = [*(file.fileno() for file in files), theirs.fileno()]
            socket.send_fds(_forking_process(), [json.dumps(request).encode()], fds)
        ours.settimeout(timeout_s)
        return int(ours.recv(10))


@cache
def _forking_process() -> socket.socket:
    """Start the forking process, once per test process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        # -P: the modules beside this file must not pass for libraries of the same name.
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()])

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> None:
    from mauve.cli.main import main  # noqa: PLC0415 - only the forking process needs it

    for name in _IMPORTED_LATER:
        import_module(name)
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a fork has no threads: import less in advance"
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        text, fds, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, _FDS)
        if not text:
            return
        if os.fork() == 0:
            requests.close()
            _run(json.loads(text), fds, main)
        for fd in fds:
            os.close(fd)


def _run(request: list[Any], fds: list[int], main: Callable[[], None]) -> None:
    """Run the command in a fork, and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv, environment, folder = request
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
        main()
        sys.exit()
    _, status = os.waitpid(pid, 0)
    os.write(result, str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
