"""How commands access the data: through the core of a running service, or directly if there is none."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.json import Decoder
from prometheus_client import CollectorRegistry

from mauve.config import Settings
from mauve.imports.chunks import packed
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.maintenance.backup import LoaderPause
from mauve.maintenance.delete_app import Deleted
from mauve.maintenance.erase import Erased
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.server.admin_socket import SOCKET, Reply, delete, erase, socket_address
from mauve.stores.data_directory import hold, holder_of
from mauve.stores.export import Chosen, EventExport, EventExtent, EventPage
from mauve.stores.imports import ImportWarehouse, StoredRows
from mauve.stores.maintenance import Frozen
from mauve.stores.warehouse import EventRows
from mauve.wiring.cluster import is_shared
from mauve.wiring.maintenance import drop_frozen, offline_pause, open_event_export, open_import_warehouse
from mauve.wiring.paths import imported_rows_path
from mauve.wiring.warehouse import open_load_parts

_ROWS_WAIT_S_MAX: Final = 3600
_UNEXPECTED_REPLY: Final = "the core sent an unexpected reply: use the running release's command"

T = TypeVar("T")

_replies: Final = Decoder(Reply)
_FROZEN: Final = Decoder(tuple[dict[str, str], int])
_ERASED: Final = Decoder(Erased)
_DELETED: Final = Decoder(Deleted)
_STORED: Final = Decoder(StoredRows)
_EXTENT: Final = Decoder(EventExtent)
_PAGE: Final = Decoder(EventPage)
_COUNT: Final = Decoder(int)
_NOTHING: Final = Decoder(None)


@contextmanager
def pause_loader(settings: Settings) -> Iterator[LoaderPause]:
    """Pause the loader, if a service is running, and freeze the warehouse."""
    if holder_of(settings.data) is None:
        with _exclusive(settings), offline_pause(settings) as pause:
            yield pause
    else:
        with closing(CoreConnection(settings.data)) as core:
            folders, events = core.ask(_FROZEN, "freeze")
            yield _CorePause(Frozen({table: Path(folder) for table, folder in folders.items()}, events), core)


def erase_user(settings: Settings, project: str, user: str) -> Erased:
    return _run(settings, _ERASED, erase, project, user)


def delete_projects(settings: Settings, projects: Sequence[str]) -> Deleted:
    return _run(settings, _DELETED, delete, projects)


def _run(settings: Settings, decoder: Decoder[T], change: Callable[..., T], *arguments: object) -> T:
    """Run a change of the stores in the core, or here if no service is running."""
    if _has_core(settings):
        with closing(CoreConnection(settings.data)) as core:
            return core.ask(decoder, change.__name__, *arguments)
    with _own_loading(settings) as loading:
        return change(settings, loading, *arguments)


@contextmanager
def export_events(settings: Settings) -> Iterator[EventExport]:
    """Read events through the core, or directly if no service is running."""
    if _has_core(settings):
        with closing(CoreConnection(settings.data)) as core:
            yield _CoreExport(core)
    else:
        with _own_loading(settings) as loading, closing(open_event_export(settings)) as events:
            loading.load_pending()
            yield events


@contextmanager
def import_warehouse(settings: Settings) -> Iterator[ImportWarehouse]:
    """Open the warehouse for imports through the core, or directly if no service is running."""
    if _has_core(settings):
        with closing(CoreConnection(settings.data)) as core:
            yield _CoreImports(core, settings)
        return
    with _exclusive(settings), open_import_warehouse(settings) as warehouse:
        yield warehouse


class _CoreImports:
    """The warehouse for imports, in the core. Rows are passed in a file, because a request is a single line."""

    def __init__(self, core: "CoreConnection", settings: Settings) -> None:
        self._core = core
        self._settings = settings
        for left in imported_rows_path(settings.data).glob("*.rows"):  # by a killed command
            if left.stat().st_mtime < time.time() - _ROWS_WAIT_S_MAX:
                left.unlink(missing_ok=True)

    def store(self, number: int, rows: EventRows) -> StoredRows:
        # Another command may store rows of the same import.
        path = imported_rows_path(self._settings.data) / f"{number}-{os.getpid()}.rows"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            _write(path, packed(rows))
            return self._core.ask(_STORED, "store_imported", number, path.name)
        finally:
            path.unlink(missing_ok=True)

    def row_count(self, project: str, number: int) -> int:
        return self._core.ask(_COUNT, "count_imported", project, number)

    def undo(self, project: str, number: int) -> int:
        return self._core.ask(_COUNT, "undo_imported", project, number)


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise MaintenanceFailedError(
            f"{error.strerror} ({path}): free some space, then repeat the command to resume"
        ) from None


def _has_core(settings: Settings) -> bool:
    """Return whether a process that accepts admin requests is running on the directory."""
    return holder_of(settings.data) is not None and (not is_shared(settings) or (settings.data / SOCKET).exists())


@contextmanager
def _own_loading(settings: Settings) -> Iterator[LoadRunner]:
    """Load pending records in this process, or wait for the machine that loads."""
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(CollectorRegistry()))
    with _exclusive(settings), closing(loading):
        yield loading


@contextmanager
def _exclusive(settings: Settings) -> Iterator[None]:
    """Keep services from starting on the directory during the block, unless every store is elsewhere."""
    if is_shared(settings):
        yield
        return
    with hold(settings.data) as lock:
        lock.truncate(0)  # It may name a server that is gone.
        drop_frozen(settings)
        yield


class _CorePause:
    """A frozen warehouse and the core's paused loader, until we resume it or our connection closes."""

    def __init__(self, frozen: Frozen, core: "CoreConnection") -> None:
        self.frozen = frozen
        self._core = core

    def resume(self) -> None:
        self._core.ask(_NOTHING, "resume")

    def release(self) -> None:
        self._core.ask(_NOTHING, "release")


class _CoreExport:
    def __init__(self, core: "CoreConnection") -> None:
        self._core = core

    def extent(self, chosen: Chosen) -> EventExtent:
        return self._core.ask(_EXTENT, "begin_export", chosen)

    def page(self, chosen: Chosen, ends: dict[int, int], day: date, after: int) -> EventPage:
        return self._core.ask(_PAGE, "read_export", chosen, ends, day, after)

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

    def ask(self, decoder: Decoder[T], command: str, *arguments: object) -> T:
        """Return the result of the core's command."""
        try:
            self._connection.sendall(msgspec.json.encode({"command": command, "arguments": arguments}) + b"\n")
            line = self._replies.readline()
        except OSError:
            line = b""
        if not line:
            raise MaintenanceFailedError(
                "the core stopped or timed out waiting for this command: check that it is running, then try again"
            )
        return _value_of(line, decoder)


def _value_of(line: bytes, decoder: Decoder[T]) -> T:
    try:
        reply = _replies.decode(line)
        if reply.refused is not None:
            raise MaintenanceRefusedError(reply.refused)
        if reply.failed is not None:
            raise MaintenanceFailedError(f"the core failed ({reply.failed}): check its log, then try again")
        return decoder.decode(reply.value)
    except msgspec.MsgspecError:
        raise MaintenanceFailedError(_UNEXPECTED_REPLY) from None
