"""Dump a PostgreSQL database with its own program, as of one moment that is fixed before anything else is copied."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError, UnsupportedServerError

_PROGRAM: Final = "pg_dump"
_PRIVATE_FILE: Final = 0o600
_REASON_CHARACTERS_MAX: Final = 300
_LOOK_EVERY_S: Final = 0.05
# The transaction keeps the moment alive; a server that ends idle transactions must not end this one.
_FIX_MOMENT: Final = (
    "SET SESSION idle_in_transaction_session_timeout = 0",
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
)


class PostgresDump:
    """A running pg_dump."""

    def __init__(self, process: "subprocess.Popen[bytes]", file: Path) -> None:
        self._process = process
        self._file = file

    def wait_for_data(self) -> None:
        """Wait until it writes: then it has found the tables and may read them."""
        while self._process.poll() is None and not (self._file.exists() and self._file.stat().st_size):
            time.sleep(_LOOK_EVERY_S)
        self.check()

    def check(self) -> None:
        """Raise if it has failed by now."""
        if self._process.poll():
            self.finish()

    def finish(self) -> None:
        _, errors = self._process.communicate()
        if self._process.returncode:
            lines = errors.decode(errors="replace").strip().splitlines() or ["it gave no reason"]
            raise StoreUnavailableError(f"pg_dump failed: {lines[0][:_REASON_CHARACTERS_MAX]}")


@contextmanager
def dump_database(url: Secret, file: Path) -> Iterator[PostgresDump]:
    """Fix the moment and start the dump. If the block raises, end it."""
    import psycopg  # noqa: PLC0415 - an extra
    from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415

    try:
        connection = psycopg.connect(url.reveal(), autocommit=True, application_name="mauve backup")
    except psycopg.Error as error:
        raise StoreUnavailableError("PostgreSQL at MAUVE_DATABASE_URL does not answer: check it") from error
    _check_version(connection.info.server_version // 10_000)
    passwords = file.with_name("pgpass")  # An argument would show the password to every user of the machine.
    parts = {name: str(value) for name, value in conninfo_to_dict(url.reveal()).items() if value is not None}
    try:
        with closing(connection):
            for statement in _FIX_MOMENT:
                connection.execute(statement)
            ((moment,),) = connection.execute("SELECT pg_export_snapshot()").fetchall()
            passwords.touch(mode=_PRIVATE_FILE)
            passwords.write_text(f"*:*:*:*:{_escaped(parts.pop('password', ''))}\n")
            address = make_conninfo("", **parts, passfile=str(passwords))
            process = _started(
                ["--no-password", "--format=custom", f"--snapshot={moment}", f"--file={file}", f"--dbname={address}"]
            )
            try:
                yield PostgresDump(process, file)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
    except psycopg.Error as error:
        raise StoreUnavailableError("PostgreSQL at MAUVE_DATABASE_URL does not answer: check it") from error
    finally:
        passwords.unlink(missing_ok=True)


def _check_version(server: int) -> None:
    """Raise unless pg_dump is of the server's version or newer: before the warehouse is copied for nothing."""
    process = _started(["--version"])
    answer, _ = process.communicate()
    found = re.search(rb"\d+", answer)
    if found is None or int(found.group()) < server:
        version = "of an unknown version" if found is None else f"of version {int(found.group())}"
        raise UnsupportedServerError(
            f"pg_dump is {version} and the server of version {server}: install the client programs of PostgreSQL "
            f"{server} or newer (Debian: postgresql-client-{server}), or see 'mauve backup --plan'"
        )


def _started(arguments: list[str]) -> "subprocess.Popen[bytes]":
    command = [_PROGRAM, *arguments]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S603 - our own words
    except FileNotFoundError:
        raise UnsupportedServerError(
            "pg_dump is not installed: install PostgreSQL's client programs, or see 'mauve backup --plan'"
        ) from None


def _escaped(password: str) -> str:
    """Escape a password for a password file."""
    return password.replace("\\", "\\\\").replace(":", "\\:")
