"""How commands reach the data: through the core of the running service, or directly if no service runs."""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from datetime import date
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from mauve.config import Settings
from mauve.imports.chunks import packed
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.maintenance.backup import LoaderPause
from mauve.maintenance.delete_app import Deleted
from mauve.maintenance.erase import Erased
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.server.admin_socket import (
    SOCKET,
    AdminReply,
    AdminRequest,
    BeginExport,
    CountImported,
    Delete,
    Erase,
    ExportBegun,
    ExportRead,
    Failed,
    Freeze,
    FrozenFiles,
    ImportedCounted,
    ImportedStored,
    ProjectsDeleted,
    ReadExport,
    Refused,
    Release,
    Resume,
    StoreImported,
    UndoImported,
    UserErased,
    delete,
    erase,
    socket_address,
)
from mauve.stores.data_directory import hold, holder_of
from mauve.stores.export import Chosen, EventExport, EventExtent, EventPage
from mauve.stores.imports import ImportWarehouse, StoredRows
from mauve.stores.maintenance import Frozen, WarehouseMaintenance
from mauve.stores.warehouse import EventRows
from mauve.wiring.cluster import is_shared
from mauve.wiring.export import open_event_export
from mauve.wiring.history import open_import_warehouse
from mauve.wiring.maintenance import drop_frozen, open_warehouse_maintenance
from mauve.wiring.paths import imported_rows_path
from mauve.wiring.warehouse import open_load_parts

_ROWS_WAIT_S_MAX: Final = 3600
_UNEXPECTED_REPLY: Final = "the core gave an unexpected reply: use the command of the release that is running"

_replies: Final = msgspec.json.Decoder(AdminReply)


@contextmanager
def pause_loader(settings: Settings) -> Iterator[LoaderPause]:
    """Pause the loader, in the core or because no service runs, and freeze the warehouse."""
    if holder_of(settings.data) is None:
        with _exclusive(settings), closing(open_warehouse_maintenance(settings)) as warehouse:
            try:
                yield _OfflinePause(warehouse)
            finally:
                warehouse.thaw()
    else:
        with closing(CoreConnection(settings.data)) as core:
            yield _CorePause(core)


def erase_user(settings: Settings, project: str, user: str) -> Erased:
    """Erase a user through the core, or directly if no service runs."""
    if not _has_core(settings):
        with _own_loading(settings) as loading:
            return erase(settings, loading, project, user)
    with closing(CoreConnection(settings.data)) as core:
        reply = core.ask(Erase(project, user))
    if not isinstance(reply, UserErased):
        raise MaintenanceFailedError(_UNEXPECTED_REPLY)
    return reply.erased


def delete_projects(settings: Settings, projects: Sequence[str]) -> Deleted:
    """Delete the data of projects through the core, or directly if no service runs."""
    if not _has_core(settings):
        with _own_loading(settings) as loading:
            return delete(settings, loading, projects)
    with closing(CoreConnection(settings.data)) as core:
        reply = core.ask(Delete(tuple(projects)))
    if not isinstance(reply, ProjectsDeleted):
        raise MaintenanceFailedError(_UNEXPECTED_REPLY)
    return reply.deleted


@contextmanager
def export_events(settings: Settings) -> Iterator[EventExport]:
    """Read events through the core, or directly if no service runs."""
    if _has_core(settings):
        with closing(CoreConnection(settings.data)) as core:
            yield _CoreExport(core)
    else:
        with _own_loading(settings) as loading, closing(open_event_export(settings)) as events:
            loading.load_pending()
            yield events


@contextmanager
def import_warehouse(settings: Settings) -> Iterator[ImportWarehouse]:
    """Open the warehouse for imports through the core, or directly if no service runs."""
    if _has_core(settings):
        with closing(CoreConnection(settings.data)) as core:
            yield _CoreImports(core, settings)
        return
    with (
        _exclusive(settings) if _needs_directory(settings) else nullcontext(),
        open_import_warehouse(settings) as warehouse,
    ):
        yield warehouse


class _CoreImports:
    """The warehouse for imports, in the core. Rows reach it in a file: they are many, and a request is one line."""

    def __init__(self, core: "CoreConnection", settings: Settings) -> None:
        self._core = core
        self._settings = settings
        for left in imported_rows_path(settings.data).glob("*.rows"):  # by a command that was killed
            if left.stat().st_mtime < time.time() - _ROWS_WAIT_S_MAX:
                left.unlink(missing_ok=True)

    def store(self, number: int, rows: EventRows) -> StoredRows:
        # Another command may store rows of the same import.
        path = imported_rows_path(self._settings.data) / f"{number}-{os.getpid()}.rows"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            _write(path, packed(rows))
            reply = self._core.ask(StoreImported(number, path.name))
        finally:
            path.unlink(missing_ok=True)
        if not isinstance(reply, ImportedStored):
            raise MaintenanceFailedError(_UNEXPECTED_REPLY)
        return reply.stored

    def row_count(self, project: str, number: int) -> int:
        return self._counted(CountImported(project, number))

    def undo(self, project: str, number: int) -> int:
        return self._counted(UndoImported(project, number))

    def _counted(self, request: AdminRequest) -> int:
        reply = self._core.ask(request)
        if not isinstance(reply, ImportedCounted):
            raise MaintenanceFailedError(_UNEXPECTED_REPLY)
        return reply.rows


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise MaintenanceFailedError(
            f"{error.strerror} ({path}): free some space, then run the same command again, which continues"
        ) from None


def _has_core(settings: Settings) -> bool:
    """Return whether a process that takes requests of commands runs on the directory."""
    return holder_of(settings.data) is not None and (_needs_directory(settings) or (settings.data / SOCKET).exists())


def _needs_directory(settings: Settings) -> bool:
    """Return whether a store is in the data directory, where only one process may change it."""
    return not is_shared(settings)


@contextmanager
def _own_loading(settings: Settings) -> Iterator[LoadRunner]:
    """Load what is pending in this process, or wait for the machine that loads."""
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(CollectorRegistry()))
    with _exclusive(settings) if _needs_directory(settings) else nullcontext(), closing(loading):
        yield loading


@contextmanager
def _exclusive(settings: Settings) -> Iterator[None]:
    """Keep services from starting on the directory during the block."""
    with hold(settings.data) as lock:
        lock.truncate(0)  # It still names a server that is gone.
        drop_frozen(settings)
        yield


class _OfflinePause:
    """A pause without a service: no loader runs, and nothing else can release the frozen files."""

    def __init__(self, warehouse: WarehouseMaintenance) -> None:
        self.frozen = warehouse.freeze()

    def resume(self) -> None:
        pass

    def release(self) -> None:
        pass


class _CorePause:
    """A pause of the core's loader, until we resume it or our connection closes."""

    def __init__(self, core: "CoreConnection") -> None:
        self._core = core
        reply = core.ask(Freeze())
        if not isinstance(reply, FrozenFiles):
            raise MaintenanceFailedError(_UNEXPECTED_REPLY)
        folders = {table: Path(folder) for table, folder in reply.folders.items()}
        self.frozen = Frozen(folders, reply.events)

    def resume(self) -> None:
        self._core.ask(Resume())

    def release(self) -> None:
        self._core.ask(Release())


class _CoreExport:
    """An export that the core reads."""

    def __init__(self, core: "CoreConnection") -> None:
        self._core = core

    def extent(self, chosen: Chosen) -> EventExtent:
        reply = self._core.ask(BeginExport(chosen))
        if not isinstance(reply, ExportBegun):
            raise MaintenanceFailedError(_UNEXPECTED_REPLY)
        return reply.extent

    def page(self, chosen: Chosen, ends: dict[int, int], day: date, after: int) -> EventPage:
        reply = self._core.ask(ReadExport(chosen, ends, day, after))
        if not isinstance(reply, ExportRead):
            raise MaintenanceFailedError(_UNEXPECTED_REPLY)
        return reply.page

    def close(self) -> None:
        self._core.close()


class CoreConnection:
    """A connection to the core's admin socket."""

    def __init__(self, data: Path) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._connection.connect(socket_address(data, folder))
        except OSError:
            self._connection.close()
            raise MaintenanceFailedError(
                "cannot connect to the core: try again in a few seconds, or check its log"
            ) from None
        finally:
            os.close(folder)
        self._replies = self._connection.makefile("rb")

    def close(self) -> None:
        self._replies.close()
        self._connection.close()

    def ask(self, request: AdminRequest) -> AdminReply:
        try:
            self._connection.sendall(msgspec.json.encode(request) + b"\n")
            line = self._replies.readline()
        except OSError:
            line = b""
        if not line:
            raise MaintenanceFailedError(
                "the core has stopped, or gave up waiting for this command: check that it runs, then try again"
            )
        reply: AdminReply = _replies.decode(line)
        if isinstance(reply, Refused):
            raise MaintenanceRefusedError(reply.reason)
        if isinstance(reply, Failed):
            raise MaintenanceFailedError(f"the core failed ({reply.reason}): check its log, then try again")
        return reply
