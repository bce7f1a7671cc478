"""Encrypted backups: age files (age-encryption.org/v1), for an SSH key that is derived from the master key.

The key is derived with HKDF, so that a backup never reveals the master key. Any `age` program can decrypt the file with
it. The library drives the I/O, so a pipe and a thread connect it to the archive.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final, Literal, TypeVar

import pyrage
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from mauve.access.vault import derived_keys
from mauve.core.secret import Secret
from mauve.maintenance.archive import Source
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.backups import BackupStoreError, Writable

A = TypeVar("A")
R = TypeVar("R")
_PURPOSE: Final = b"mauve backup encryption v1"
_MAGIC: Final = b"age-encryption.org/v1\n"


@dataclass(frozen=True, slots=True)
class BackupKeys:
    recipient: Any  # of the current master key
    identities: list[Any]  # of every master key, older ones included


def backup_keys(master_keys: Secret) -> BackupKeys:
    private = [Ed25519PrivateKey.from_private_bytes(key) for key in derived_keys(master_keys, _PURPOSE)]
    public = private[0].public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    texts = [key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()) for key in private]
    return BackupKeys(pyrage.ssh.Recipient.from_str(public), [pyrage.ssh.Identity.from_buffer(text) for text in texts])


def is_encrypted(source: Source) -> bool:
    try:
        with source.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        raise MaintenanceRefusedError(f"there is no file {source}: check the name") from None


@contextmanager
def encrypted(target: Writable, keys: BackupKeys) -> Iterator[Writable]:
    """Yield a file that is encrypted into the target. The target is complete when the block ends."""
    reading, writing = os.pipe()
    plain = os.fdopen(reading, "rb")
    work = _Work(lambda source, sealed: pyrage.encrypt_io(source, sealed, [keys.recipient]), plain, target, plain)
    try:
        with os.fdopen(writing, "wb") as pipe:
            yield pipe
    except BrokenPipeError:  # The thread has failed: report its error instead.
        raise work.finish() or BrokenPipeError from None
    finally:
        error = work.finish()
    if error is not None:
        raise error


class DecryptedSource:
    """An encrypted backup that opens as a plain one."""

    def __init__(self, source: Source, keys: BackupKeys) -> None:
        self._source = source
        self._keys = keys

    def __str__(self) -> str:
        return str(self._source)

    @contextmanager
    def open(self, mode: Literal["rb"]) -> Iterator[IO[bytes]]:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as plain, self._source.open(mode) as file:
            pipe = os.fdopen(writing, "wb")
            work = _Work(lambda sealed, out: pyrage.decrypt_io(sealed, out, self._keys.identities), file, pipe, pipe)
            try:
                yield plain
            finally:
                plain.close()  # If the reader stops early, the thread ends with a broken pipe.
                error = work.finish()
                if error is not None and not isinstance(error, BrokenPipeError):
                    raise self._explained(error) from error

    def _explained(self, error: Exception) -> Exception:
        if isinstance(error, BackupStoreError):
            return error
        if isinstance(error, pyrage.DecryptError) and "No matching keys" in str(error):
            advice = "set MAUVE_MASTER_KEY to the key that the service had then, or use another copy"
            return MaintenanceRefusedError(f"{self} was encrypted with another master key, or is damaged: {advice}")
        return MaintenanceRefusedError(f"{self} is not a whole backup ({error}): use another copy")


class _Work:
    """Runs the library in a thread, between two files, then closes its end of the pipe."""

    def __init__(self, run: Callable[[Any, Any], None], source: IO[bytes], target: Writable, own: IO[bytes]) -> None:
        self._run = run
        self._own = own
        self._source, self._target = _Remembering(read=source.read), _Remembering(write=target.write)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="backup-encryption")
        self._thread.start()

    def finish(self) -> Exception | None:
        """Wait for the thread to end; return its error, if any."""
        self._thread.join()
        return self._error

    def _work(self) -> None:
        try:
            with self._own:
                self._run(self._source, self._target)
        except Exception as error:  # noqa: BLE001 - reported by the waiting thread
            self._error = self._source.error or self._target.error or error


class _Remembering:
    """A file that remembers its error, because the library reports only the text."""

    def __init__(self, read: Callable[[int], bytes] = lambda _: b"", write: Callable[[bytes], int] = len) -> None:
        self.error: Exception | None = None
        self._read = read
        self._write = write

    def read(self, size: int) -> bytes:
        return self._remembered(self._read, size)

    def write(self, content: bytes) -> int:
        return self._remembered(self._write, content)

    def flush(self) -> None:
        """Do nothing: closing flushes."""

    def _remembered(self, call: Callable[[A], R], argument: A) -> R:
        try:
            return call(argument)
        except Exception as error:
            self.error = error
            raise
