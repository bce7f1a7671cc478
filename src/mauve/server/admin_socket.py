"""The admin socket: runs operations for commands such as `mauve backup` that only the core can perform.

The socket is in the data directory, and only its owner can open it. Each request and reply is a msgpack value after its
length. Resources held by a command (the paused loader, the frozen warehouse) are released when its connection closes.
An export requests one page at a time, so that a slow one costs nothing; all exports share one thread.
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
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

import msgspec
import structlog
from msgspec.msgpack import Decoder, Encoder

from mauve.config import Settings
from mauve.imports.chunks import unpacked
from mauve.load.runner import LoadRunner
from mauve.maintenance.erase import Erased, delete_projects, erase_user
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.query.answer_cache import AnswerCache
from mauve.stores import StoreUnavailableError
from mauve.stores.export import Chosen, EventExport, EventExtent, EventPage
from mauve.stores.imports import ImportWarehouse, StoredRows
from mauve.stores.maintenance import Frozen
from mauve.stores.warehouse import RowsRefusedError, WarehouseUnavailableError
from mauve.wiring.log import open_log_maintenance
from mauve.wiring.maintenance import (
    open_event_export,
    open_import_warehouse,
    open_ledger_maintenance,
    open_warehouse_maintenance,
)

PAUSE_S_MAX: Final = 600.0
SOCKET: Final = "core.sock"
LENGTH_BYTES: Final = 8
_SOCKET_PATH_BYTES_MAX: Final = 100
_PRIVATE_FILE: Final = 0o600
_freezing: Final = threading.Lock()  # one backup at a time
_erasing: Final = threading.Lock()  # one erasure at a time

T = TypeVar("T")

log = structlog.get_logger()


class StoreOperations:
    """Operations of one command on the stores, in the process that has the warehouse open."""

    def __init__(
        self,
        settings: Settings,
        loading: LoadRunner,
        cache: AnswerCache | None = None,  # None: this process answers no reads
    ) -> None:
        self._settings = settings
        self._loading = loading
        self._cache = cache
        self._frozen = ExitStack()
        self._paused = ExitStack()
        self._opened = ExitStack()
        self.idle_s_max: float | None = None  # how long to wait for the next request

    def close(self) -> None:
        self.release()
        self._opened.close()

    def freeze(self) -> Frozen:
        """Pause the loader and freeze the warehouse."""
        if not _freezing.acquire(blocking=False):
            raise MaintenanceRefusedError("another backup is in progress: wait for it to finish")
        self._frozen.callback(_freezing.release)
        warehouse = self._frozen.enter_context(closing(open_warehouse_maintenance(self._settings)))
        self._paused.enter_context(self._loading.paused())
        self.idle_s_max = PAUSE_S_MAX
        self._frozen.callback(warehouse.thaw)
        return warehouse.freeze()

    def resume(self) -> None:
        """Resume the loader and keep the frozen files."""
        self._paused.close()
        self.idle_s_max = None

    def release(self) -> None:
        self.resume()
        self._frozen.close()

    def erase_user(self, project: str, user: str) -> Erased:
        return self._change(partial(erase_user, project, user), [project])

    def delete_projects(self, projects: Sequence[str]) -> Erased:
        return self._change(partial(delete_projects, projects), projects)

    def _change(self, change: Callable[..., T], projects: Sequence[str]) -> T:
        """Change every store, then remove the answers about the projects from the cache of this process."""
        with (
            _erasing,
            closing(open_warehouse_maintenance(self._settings)) as warehouse,
            closing(open_ledger_maintenance(self._settings)) as ledger,
        ):
            log = open_log_maintenance(self._settings)
            result = change(load_pending=self._loading.load_pending, warehouse=warehouse, ledger=ledger, log=log)
        if self._cache is not None:
            for project in projects:
                self._cache.forget(project)
        return result

    @cached_property
    def _events(self) -> EventExport:
        return self._opened.enter_context(closing(open_event_export(self._settings)))

    def extent(self, chosen: Chosen) -> EventExtent:
        """Load the queue and return the events to export."""
        self._loading.load_pending()
        return self._events.extent(chosen)

    def page(self, chosen: Chosen, ends: dict[int, int], day: date, after: int) -> EventPage:
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

    def store_packed(self, number: int, rows: bytes) -> StoredRows:
        with self._importing() as warehouse:
            return warehouse.store(number, unpacked(rows))

    def row_count(self, project: str, number: int) -> int:
        with self._importing() as warehouse:
            return warehouse.row_count(project, number)

    def undo(self, project: str, number: int) -> int:
        with self._importing() as warehouse:
            return warehouse.undo(project, number)


class Operation(NamedTuple):
    """How the arguments and the result of a method of `StoreOperations` are decoded."""

    arguments: Decoder[Any]
    result: Decoder[Any]


def _operation(name: str) -> Operation:
    types = get_type_hints(getattr(StoreOperations, name))
    result = types.pop("return")
    return Operation(_decoder(tuple[*types.values()]), _decoder(result))  # type: ignore[misc]


def _decoder(type_: Any) -> Decoder[Any]:  # noqa: ANN401 - a type form
    return Decoder(type_, dec_hook=lambda wanted, value: wanted(value))  # for paths


_EXPORTING: Final = ("extent", "page")
_BACKING_UP: Final = ("freeze", "resume", "release")
_CHANGING: Final = ("erase_user", "delete_projects", "store_packed", "row_count", "undo")
OPERATIONS: Final[Mapping[str, Operation]] = {
    name: _operation(name) for name in (*_EXPORTING, *_BACKING_UP, *_CHANGING)
}


class Request(msgspec.Struct, frozen=True):
    operation: str
    arguments: msgspec.Raw


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """An operation's result, or why it was refused or failed."""

    value: msgspec.Raw = msgspec.Raw(b"\xc0")  # None
    refused: str | None = None  # says what to do
    failed: str | None = None  # an engine, or the disk


encode: Final = Encoder(enc_hook=os.fspath).encode
_requests: Final = Decoder(Request)


def framed(message: msgspec.Struct) -> bytes:
    content = encode(message)
    return len(content).to_bytes(LENGTH_BYTES) + content


def socket_address(data: Path, folder: int) -> str:
    """Return the socket's address; `folder` is the open data directory, for paths too long for an address."""
    path = str(data.absolute() / SOCKET)
    return path if len(path.encode()) < _SOCKET_PATH_BYTES_MAX else f"/proc/self/fd/{folder}/{SOCKET}"


class AdminSocket:
    """Accepts commands while the core runs."""

    def __init__(self, settings: Settings, loading: LoadRunner, cache: AnswerCache | None = None) -> None:
        self._settings = settings
        self._operations = partial(StoreOperations, settings, loading, cache)
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
        operations, running = self._operations(), threading.Lock()
        loop = asyncio.get_running_loop()
        try:
            while True:
                request = _requests.decode(await asyncio.wait_for(_read(reader), operations.idle_s_max))
                thread = self._exporting if request.operation in _EXPORTING else None
                writer.write(framed(await loop.run_in_executor(thread, _run, operations, request, running)))
                await writer.drain()
        except TimeoutError:
            log.warning("loader_pause_expired", advice="a command paused the loader for too long: see whether it hangs")
        except (OSError, asyncio.IncompleteReadError):
            pass  # The command is gone and needs no reply.
        except (KeyError, msgspec.MsgspecError) as error:
            advice = "run commands of the same release as the service"
            log.warning("admin_request_invalid", reason=str(error), advice=advice)
        finally:
            writer.close()
            await asyncio.to_thread(_close, operations, running)


async def _read(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES)))


def _run(operations: StoreOperations, request: Request, running: threading.Lock) -> Reply:
    """Run the operation; raise KeyError if there is none of that name."""
    arguments = OPERATIONS[request.operation].arguments.decode(request.arguments)
    with running:
        try:
            return Reply(msgspec.Raw(encode(getattr(operations, request.operation)(*arguments))))
        except MaintenanceRefusedError as error:
            return Reply(refused=str(error))
        except (RowsRefusedError, WarehouseUnavailableError, StoreUnavailableError, OSError) as error:
            log.warning("admin_request_failed", request=request.operation, reason=str(error))
            return Reply(failed=str(error))


def _close(operations: StoreOperations, running: threading.Lock) -> None:
    with running:  # Wait for the request in progress.
        operations.close()


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
