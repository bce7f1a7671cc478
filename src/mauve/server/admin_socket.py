"""The admin socket: commands such as `mauve backup` ask the running core for what only it can do.

The socket is in the data directory, and only its owner can open it. Each request and each reply is one line of JSON.
Whatever a command holds (the paused loader, the frozen warehouse) is released when its connection closes, for whatever
reason. An export asks for one page after the other, so that a slow one costs nothing; all exports share one thread.
A command and the core must come from the same release.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import date
from pathlib import Path
from typing import Final

import msgspec
import structlog

from mauve.config import Settings
from mauve.imports.chunks import unpacked
from mauve.load.runner import LoadRunner
from mauve.maintenance.delete_app import Deleted, delete_projects
from mauve.maintenance.erase import Erased, erase_user
from mauve.query.answer_cache import AnswerCache
from mauve.stores import StoreUnavailableError
from mauve.stores.export import Chosen, EventExport, EventExtent, EventPage
from mauve.stores.imports import ImportWarehouse, StoredRows
from mauve.stores.warehouse import RowsRefusedError, WarehouseUnavailableError
from mauve.wiring.export import open_event_export
from mauve.wiring.history import open_import_warehouse
from mauve.wiring.log import open_log_maintenance
from mauve.wiring.maintenance import open_ledger_maintenance, open_warehouse_maintenance
from mauve.wiring.paths import imported_rows_path

PAUSE_S_MAX: Final = 600.0
SOCKET: Final = "core.sock"
_SOCKET_PATH_BYTES_MAX: Final = 100
_PRIVATE_FILE: Final = 0o600

log = structlog.get_logger()


class Freeze(msgspec.Struct, frozen=True, tag="freeze"):
    """Pause the loader and freeze the warehouse."""


class Resume(msgspec.Struct, frozen=True, tag="resume"):
    """Resume the loader and keep the frozen files."""


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Resume the loader and release the frozen files."""


class Erase(msgspec.Struct, frozen=True, tag="erase"):
    project: str
    user: str


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    projects: tuple[str, ...]


class BeginExport(msgspec.Struct, frozen=True, tag="export"):
    """Load what waits, and return the events to export."""

    chosen: Chosen


class ReadExport(msgspec.Struct, frozen=True, tag="export page"):
    """Return the next events of a day."""

    chosen: Chosen
    ends: dict[int, int]
    day: date
    after: int


class StoreImported(msgspec.Struct, frozen=True, tag="store_imported"):
    """Store the rows of an import that are in a file of the data directory."""

    number: int
    file: str


class CountImported(msgspec.Struct, frozen=True, tag="count_imported"):
    project: str
    number: int


class UndoImported(msgspec.Struct, frozen=True, tag="undo_imported"):
    project: str
    number: int


class FrozenFiles(msgspec.Struct, frozen=True, tag="frozen"):
    folders: dict[str, str]
    events: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    pass


class UserErased(msgspec.Struct, frozen=True, tag="erased"):
    erased: Erased


class ProjectsDeleted(msgspec.Struct, frozen=True, tag="deleted"):
    deleted: Deleted


class ExportBegun(msgspec.Struct, frozen=True, tag="extent"):
    extent: EventExtent


class ExportRead(msgspec.Struct, frozen=True, tag="page"):
    page: EventPage


class ImportedStored(msgspec.Struct, frozen=True, tag="imported_stored"):
    stored: StoredRows


class ImportedCounted(msgspec.Struct, frozen=True, tag="imported_counted"):
    rows: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The command cannot run now. The reason says what to do."""

    reason: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The command ran, and an engine or the disk failed."""

    reason: str


AdminRequest = (
    Freeze | Resume | Release | Erase | Delete | BeginExport | ReadExport | StoreImported | CountImported | UndoImported
)
AdminReply = (
    FrozenFiles
    | Done
    | UserErased
    | ProjectsDeleted
    | ExportBegun
    | ExportRead
    | ImportedStored
    | ImportedCounted
    | Refused
    | Failed
)
_requests: Final = msgspec.json.Decoder(AdminRequest)


def socket_address(data: Path, folder: int) -> str:
    """Return the socket's address; `folder` is the open data directory, for paths too long for an address."""
    path = str(data.absolute() / SOCKET)
    return path if len(path.encode()) < _SOCKET_PATH_BYTES_MAX else f"/proc/self/fd/{folder}/{SOCKET}"


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
        """Start to listen. If that fails, log it and let the core run: only some commands need the socket."""
        try:
            self._server = await asyncio.start_unix_server(self._accept, sock=_listen_in(self._settings.data))
        except OSError as error:
            advice = "stop the service for backups and erasure, or give it a data directory with a shorter path"
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
                thread = self._exporting if isinstance(request, BeginExport | ReadExport) else None
                loop = asyncio.get_running_loop()
                writer.write(await loop.run_in_executor(thread, _reply_to, connection.run, request))
                await writer.drain()
        except TimeoutError:
            log.warning("loader_pause_expired", advice="a command paused the loader for too long: check if it hangs")
        except OSError:
            pass  # The command is gone and needs no reply.
        except (ValueError, msgspec.MsgspecError) as error:
            advice = "run commands of the same release as the service"
            log.warning("admin_request_invalid", reason=str(error), advice=advice)
        finally:
            writer.close()
            await asyncio.to_thread(connection.close)


def _reply_to(run: Callable[[AdminRequest], AdminReply], request: AdminRequest) -> bytes:
    """Return the reply as a line. A page is long: encode it in this thread."""
    return msgspec.json.encode(_run(run, request)) + b"\n"


def _run(run: Callable[[AdminRequest], AdminReply], request: AdminRequest) -> AdminReply:
    try:
        return run(request)
    except (RowsRefusedError, WarehouseUnavailableError, StoreUnavailableError, OSError) as error:
        log.warning("admin_request_failed", request=type(request).__name__.lower(), reason=str(error))
        return Failed(str(error))


class AdminConnection:
    """One connected command, and what is held for it."""

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
        self._events: EventExport | None = None
        self._imports = ExitStack()
        self._import_warehouse: ImportWarehouse | None = None  # opened with the first request about an import
        self._running = threading.Lock()
        self.idle_s_max: float | None = None  # how long to wait for the next request

    def run(self, request: AdminRequest) -> AdminReply:
        with self._running:
            return self._run(request)

    def close(self) -> None:
        """Wait for the request in progress, then release everything."""
        with self._running:
            self._release()
            if self._events is not None:
                self._events.close()
            self._imports.close()

    def _run(self, request: AdminRequest) -> AdminReply:
        match request:
            case Freeze():
                return self._freeze()
            case Resume():
                self._resume()
            case Release():
                self._release()
            case Erase(project, user):
                with self._erasing:
                    erased = erase(self._settings, self._loading, project, user)
                    self._forget([project])
                    return UserErased(erased)
            case Delete(projects):
                with self._erasing:
                    deleted = delete(self._settings, self._loading, projects)
                    self._forget(projects)
                    return ProjectsDeleted(deleted)
            case BeginExport() | ReadExport():
                return self._export(request)
            case StoreImported() | CountImported() | UndoImported():
                return self._import(request)
        return Done()

    def _forget(self, projects: Sequence[str]) -> None:
        """Remove the answers about projects from the cache of this process."""
        if self._cache is not None:
            for project in projects:
                self._cache.forget(project)

    def _export(self, request: BeginExport | ReadExport) -> AdminReply:
        if self._events is None:
            self._events = open_event_export(self._settings)
        match request:
            case BeginExport(chosen):
                self._loading.load_pending()
                return ExportBegun(self._events.extent(chosen))
            case ReadExport(chosen, ends, day, after):
                return ExportRead(self._events.page(chosen, ends, day, after))

    def _import(self, request: StoreImported | CountImported | UndoImported) -> AdminReply:
        if self._import_warehouse is None:
            self._import_warehouse = self._imports.enter_context(open_import_warehouse(self._settings))
        # A backup takes warehouse and ledger while the loader is paused: no rows may be stored in between.
        with self._loading.paused():
            match request:
                case StoreImported(number, file):
                    path = imported_rows_path(self._settings.data) / Path(file).name
                    try:
                        rows = unpacked(path.read_bytes())
                        return ImportedStored(self._import_warehouse.store(number, rows))
                    finally:
                        path.unlink(missing_ok=True)  # The command may be gone, and the rows name people.
                case CountImported(project, number):
                    return ImportedCounted(self._import_warehouse.row_count(project, number))
                case UndoImported(project, number):
                    return ImportedCounted(self._import_warehouse.undo(project, number))

    def _resume(self) -> None:
        self._paused.close()
        self.idle_s_max = None

    def _release(self) -> None:
        self._resume()
        self._frozen.close()

    def _freeze(self) -> AdminReply:
        if not self._freezing.acquire(blocking=False):
            return Refused("another backup is in progress: wait for it to finish")
        self._frozen.callback(self._freezing.release)
        warehouse = self._frozen.enter_context(closing(open_warehouse_maintenance(self._settings)))
        self._paused.enter_context(self._loading.paused())
        self.idle_s_max = PAUSE_S_MAX
        self._frozen.callback(warehouse.thaw)
        frozen = warehouse.freeze()
        return FrozenFiles({table: str(folder) for table, folder in frozen.folders.items()}, frozen.events)


def erase(settings: Settings, loading: LoadRunner, project: str, user: str) -> Erased:
    """Erase a user from every store, in the process that has the warehouse open."""
    with (
        closing(open_warehouse_maintenance(settings)) as warehouse,
        closing(open_ledger_maintenance(settings)) as ledger,
    ):
        return erase_user(
            project,
            user,
            load_pending=loading.load_pending,
            warehouse=warehouse,
            ledger=ledger,
            log=open_log_maintenance(settings),
        )


def delete(settings: Settings, loading: LoadRunner, projects: Sequence[str]) -> Deleted:
    """Delete projects from every store, in the process that has the warehouse open."""
    with (
        closing(open_warehouse_maintenance(settings)) as warehouse,
        closing(open_ledger_maintenance(settings)) as ledger,
    ):
        return delete_projects(
            projects,
            load_pending=loading.load_pending,
            warehouse=warehouse,
            ledger=ledger,
            log=open_log_maintenance(settings),
        )


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
