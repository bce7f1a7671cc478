"""How commands reach the data: through the core of the running service, or directly if no service runs."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from mauve.config import Settings
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.maintenance.backup import LoaderPause
from mauve.maintenance.delete_app import Deleted
from mauve.maintenance.erase import Erased
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.server.admin_socket import (
    SOCKET,
    AdminReply,
    AdminRequest,
    Delete,
    Erase,
    Failed,
    Freeze,
    FrozenFiles,
    ProjectsDeleted,
    Refused,
    Release,
    Resume,
    UserErased,
    delete,
    erase,
    socket_address,
)
from mauve.stores.data_directory import hold, holder_of
from mauve.stores.maintenance import Frozen, WarehouseMaintenance
from mauve.wiring.maintenance import drop_frozen, open_warehouse_maintenance
from mauve.wiring.warehouse import open_load_parts

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


def _has_core(settings: Settings) -> bool:
    """Return whether a process that takes requests of commands runs on the directory."""
    return holder_of(settings.data) is not None and (_needs_directory(settings) or (settings.data / SOCKET).exists())


def _needs_directory(settings: Settings) -> bool:
    """Return whether a store is in the data directory, where only one process may change it."""
    return settings.database_url is None or settings.warehouse_url is None or settings.stream_url is None


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
