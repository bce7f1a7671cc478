"""The admin socket: runs operations for commands such as `mauve backup` that only the core can perform.

The socket is in the data directory, and only its owner can open it. Each request and each reply is one line of JSON.
Resources held by a command (the paused loader, the frozen warehouse) are released when its connection closes. An export
requests one page at a time, so that a slow one costs nothing; all exports share one thread.
A command and the core must come from the same release.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import structlog
from msgspec.json import Decoder

from mauve.config import Settings
from mauve.imports.chunks import unpacked
from mauve.load.runner import LoadRunner
from mauve.maintenance.delete_app import Deleted, delete_projects
from mauve.maintenance.erase import Erased, erase_user
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.query.answer_cache import AnswerCache
from mauve.stores import StoreUnavailableError
from mauve.stores.export import Chosen, EventExport, EventExtent, EventPage
from mauve.stores.imports import ImportWarehouse, StoredRows
from mauve.stores.warehouse import RowsRefusedError, WarehouseUnavailableError
from mauve.wiring.log import open_log_maintenance
from mauve.wiring.maintenance import (
    open_event_export,
    open_import_warehouse,
    open_ledger_maintenance,
    open_warehouse_maintenance,
)
from mauve.wiring.paths import imported_rows_path

PAUSE_S_MAX: Final = 600.0
SOCKET: Final = "core.sock"
_SOCKET_PATH_BYTES_MAX: Final = 100
_PRIVATE_FILE: Final = 0o600

T = TypeVar("T")

log = structlog.get_logger()


class Request(msgspec.Struct, frozen=True):
    command: str
    arguments: msgspec.Raw


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command's result, or why it was refused or failed."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    refused: str | None = None  # says what to do
    failed: str | None = None  # an engine, or the disk


def socket_address(data: Path, folder: int) -> str:
    """Return the socket's address; `folder` is the open data directory, for paths too long for an address."""
    path = str(data.absolute() / SOCKET)
    return path if len(path.encode()) < _SOCKET_PATH_BYTES_MAX else f"/proc/self/fd/{folder}/{SOCKET}"


_requests: Final = Decoder(Request)


class AdminSocket:
    """Accepts commands while the core runs."""

    def __init__(self, settings: Settings, loading: LoadRunner, cache: AnswerCache | None = None) -> None:
        self._settings = settings
        self._loading = loading
        self._cache = cache  # None: this process answers no reads
        self._freezing = threading.Lock()  # one backup at a time
        self._erasing = threading.Lock()  # one erasure at a time
        self._exporting = ThreadPoolExecutor(1, thread_name_prefix="export")  # one page at a time
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start listening. On failure, only log it: few commands need the socket."""
        try:
            self._server = await asyncio.start_unix_server(self._accept, sock=_listen_in(self._settings.data))
        except OSError as error:
            advice = "stop the service for backups and erasure, or use a data directory with a shorter path"
            log.warning("admin_socket_unavailable", reason=str(error), advice=advice)

    async def close(self) -> None:
        """Stop accepting commands and close every connection."""
        if self._server is None:
            return
        self._server.close()
        (self._settings.data / SOCKET).unlink(missing_ok=True)
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._exporting.shutdown(wait=False, cancel_futures=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = AdminConnection(self._settings, self._loading, self._freezing, self._erasing, self._cache)
        try:
            while line := await asyncio.wait_for(reader.readline(), connection.idle_s_max):
                request = _requests.decode(line)
                thread = self._exporting if request.command in _EXPORTING else None
                loop = asyncio.get_running_loop()
                writer.write(await loop.run_in_executor(thread, connection.reply_to, request))
                await writer.drain()
        except TimeoutError:
            log.warning("loader_pause_expired", advice="a command paused the loader for too long: see whether it hangs")
        except OSError:
            pass  # The command is gone and needs no reply.
        except (ValueError, msgspec.MsgspecError) as error:
            advice = "run commands of the same release as the service"
            log.warning("admin_request_invalid", reason=str(error), advice=advice)
        finally:
            writer.close()
            await asyncio.to_thread(connection.close)


class AdminConnection:
    """One connected command and the resources it holds."""

    def __init__(
        self,
        settings: Settings,
        loading: LoadRunner,
        freezing: threading.Lock,
        erasing: threading.Lock,
        cache: AnswerCache | None,
    ) -> None:
        self._settings = settings
        self._loading = loading
        self._freezing = freezing
        self._erasing = erasing
        self._cache = cache
        self._frozen = ExitStack()
        self._paused = ExitStack()
        self._opened = ExitStack()
        self._running = threading.Lock()
        self.idle_s_max: float | None = None  # how long to wait for the next request

    def reply_to(self, request: Request) -> bytes:
        """Run the command and return the reply as a line; raise ValueError if there is no such command."""
        if request.command not in _COMMANDS:
            raise ValueError(request.command)
        decoder, run = _COMMANDS[request.command]
        arguments = decoder.decode(request.arguments)
        with self._running:
            return msgspec.json.encode(self._run(request.command, partial(run, self, *arguments))) + b"\n"

    def _run(self, command: str, run: Callable[[], object]) -> Reply:
        try:
            return Reply(msgspec.Raw(msgspec.json.encode(run())))
        except MaintenanceRefusedError as error:
            return Reply(refused=str(error))
        except (RowsRefusedError, WarehouseUnavailableError, StoreUnavailableError, OSError) as error:
            log.warning("admin_request_failed", request=command, reason=str(error))
            return Reply(failed=str(error))

    def close(self) -> None:
        """Wait for the request in progress, then release everything."""
        with self._running:
            self.release()
            self._opened.close()

    def freeze(self) -> tuple[dict[str, str], int]:
        """Pause the loader and freeze the warehouse; return the folders of its tables, and the number of events."""
        if not self._freezing.acquire(blocking=False):
            raise MaintenanceRefusedError("another backup is in progress: wait for it to finish")
        self._frozen.callback(self._freezing.release)
        warehouse = self._frozen.enter_context(closing(open_warehouse_maintenance(self._settings)))
        self._paused.enter_context(self._loading.paused())
        self.idle_s_max = PAUSE_S_MAX
        self._frozen.callback(warehouse.thaw)
        frozen = warehouse.freeze()
        return {table: str(folder) for table, folder in frozen.folders.items()}, frozen.events

    def resume(self) -> None:
        """Resume the loader and keep the frozen files."""
        self._paused.close()
        self.idle_s_max = None

    def release(self) -> None:
        self.resume()
        self._frozen.close()

    def erase(self, project: str, user: str) -> Erased:
        with self._erasing:
            erased = erase(self._settings, self._loading, project, user)
            self._forget([project])
            return erased

    def delete(self, projects: list[str]) -> Deleted:
        with self._erasing:
            deleted = delete(self._settings, self._loading, projects)
            self._forget(projects)
            return deleted

    def _forget(self, projects: Sequence[str]) -> None:
        """Remove the answers about projects from the cache of this process."""
        if self._cache is not None:
            for project in projects:
                self._cache.forget(project)

    @cached_property
    def _events(self) -> EventExport:
        return self._opened.enter_context(closing(open_event_export(self._settings)))

    def begin_export(self, chosen: Chosen) -> EventExtent:
        """Load the queue and return the events to export."""
        self._loading.load_pending()
        return self._events.extent(chosen)

    def read_export(self, chosen: Chosen, ends: dict[int, int], day: date, after: int) -> EventPage:
        return self._events.page(chosen, ends, day, after)

    @cached_property
    def _warehouse(self) -> ImportWarehouse:
        return self._opened.enter_context(open_import_warehouse(self._settings))

    @contextmanager
    def _importing(self) -> Iterator[ImportWarehouse]:
        warehouse = self._warehouse
        # A backup copies the warehouse and ledger while the loader is paused: no rows may be stored in between.
        with self._loading.paused():
            yield warehouse

    def store_imported(self, number: int, file: str) -> StoredRows:
        """Store the rows of an import that are in a file of the data directory."""
        path = imported_rows_path(self._settings.data) / Path(file).name
        try:
            with self._importing() as warehouse:
                return warehouse.store(number, unpacked(path.read_bytes()))
        finally:
            path.unlink(missing_ok=True)  # The command may be gone, and the rows hold personal data.

    def count_imported(self, project: str, number: int) -> int:
        with self._importing() as warehouse:
            return warehouse.row_count(project, number)

    def undo_imported(self, project: str, number: int) -> int:
        with self._importing() as warehouse:
            return warehouse.undo(project, number)


_COMMANDS: Final[Mapping[str, tuple[Decoder[Any], Callable[..., object]]]] = {  # argument decoder and method
    "freeze": (Decoder(tuple[()]), AdminConnection.freeze),
    "resume": (Decoder(tuple[()]), AdminConnection.resume),
    "release": (Decoder(tuple[()]), AdminConnection.release),
    "erase": (Decoder(tuple[str, str]), AdminConnection.erase),
    "delete": (Decoder(tuple[list[str]]), AdminConnection.delete),
    "begin_export": (Decoder(tuple[Chosen]), AdminConnection.begin_export),
    "read_export": (Decoder(tuple[Chosen, dict[int, int], date, int]), AdminConnection.read_export),
    "store_imported": (Decoder(tuple[int, str]), AdminConnection.store_imported),
    "count_imported": (Decoder(tuple[str, int]), AdminConnection.count_imported),
    "undo_imported": (Decoder(tuple[str, int]), AdminConnection.undo_imported),
}
_EXPORTING: Final = frozenset({"begin_export", "read_export"})


def erase(settings: Settings, loading: LoadRunner, project: str, user: str) -> Erased:
    """Erase a user from every store, in the process that has the warehouse open."""
    return _change_stores(settings, loading, partial(erase_user, project, user))


def delete(settings: Settings, loading: LoadRunner, projects: Sequence[str]) -> Deleted:
    """Delete projects from every store, in the process that has the warehouse open."""
    return _change_stores(settings, loading, partial(delete_projects, projects))


def _change_stores(settings: Settings, loading: LoadRunner, change: Callable[..., T]) -> T:
    with (
        closing(open_warehouse_maintenance(settings)) as warehouse,
        closing(open_ledger_maintenance(settings)) as ledger,
    ):
        log = open_log_maintenance(settings)
        return change(load_pending=loading.load_pending, warehouse=warehouse, ledger=ledger, log=log)


def _listen_in(data: Path) -> socket.socket:
    (data / SOCKET).unlink(missing_ok=True)  # Left over from a core that was killed: only one runs at a time.
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(socket_address(data, folder))
        (data / SOCKET).chmod(_PRIVATE_FILE)
    except OSError:
        listening.close()
        raise
    finally:
        os.close(folder)
    return listening
