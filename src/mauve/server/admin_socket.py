"""The admin socket: commands such as `mauve backup` ask the running core for what only it can do.

The socket is in the data directory, and only its owner can open it. Each request and each reply is one line of JSON.
Whatever a command holds (the paused loader, the frozen warehouse) is released when its connection closes, for whatever
reason. A command and the core must come from the same release.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import msgspec
import structlog

from mauve.config import Settings
from mauve.load.runner import LoadRunner
from mauve.maintenance.delete_app import Deleted, delete_projects
from mauve.maintenance.erase import Erased, erase_user
from mauve.stores import StoreUnavailableError
from mauve.stores.warehouse import WarehouseUnavailableError
from mauve.wiring.log import open_log_maintenance
from mauve.wiring.maintenance import open_ledger_maintenance, open_warehouse_maintenance

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


class FrozenFiles(msgspec.Struct, frozen=True, tag="frozen"):
    folders: dict[str, str]
    events: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    pass


class UserErased(msgspec.Struct, frozen=True, tag="erased"):
    erased: Erased


class ProjectsDeleted(msgspec.Struct, frozen=True, tag="deleted"):
    deleted: Deleted


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The command cannot run now. The reason says what to do."""

    reason: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The command ran, and an engine or the disk failed."""

    reason: str


AdminRequest = Freeze | Resume | Release | Erase | Delete
AdminReply = FrozenFiles | Done | UserErased | ProjectsDeleted | Refused | Failed
_requests: Final = msgspec.json.Decoder(AdminRequest)


def socket_address(data: Path, folder: int) -> str:
    """Return the socket's address; `folder` is the open data directory, for paths too long for an address."""
    path = str(data.absolute() / SOCKET)
    return path if len(path.encode()) < _SOCKET_PATH_BYTES_MAX else f"/proc/self/fd/{folder}/{SOCKET}"


class AdminSocket:
    """Accepts commands while the core runs."""

    def __init__(self, settings: Settings, loading: LoadRunner) -> None:
        self._settings = settings
        self._loading = loading
        self._freezing = threading.Lock()  # one backup at a time
        self._erasing = threading.Lock()  # one erasure at a time
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

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = AdminConnection(self._settings, self._loading, self._freezing, self._erasing)
        try:
            while line := await asyncio.wait_for(reader.readline(), connection.idle_s_max):
                reply = await asyncio.to_thread(_reply_to, connection.run, _requests.decode(line))
                writer.write(msgspec.json.encode(reply) + b"\n")
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


def _reply_to(run: Callable[[AdminRequest], AdminReply], request: AdminRequest) -> AdminReply:
    try:
        return run(request)
    except (WarehouseUnavailableError, StoreUnavailableError, OSError) as error:
        log.warning("admin_request_failed", request=type(request).__name__.lower(), reason=str(error))
        return Failed(str(error))


class AdminConnection:
    """One connected command, and what is held for it."""

    def __init__(
        self, settings: Settings, loading: LoadRunner, freezing: threading.Lock, erasing: threading.Lock
    ) -> None:
        self._settings = settings
        self._loading = loading
        self._freezing = freezing
        self._erasing = erasing
        self._frozen = ExitStack()
        self._paused = ExitStack()
        self._running = threading.Lock()
        self.idle_s_max: float | None = None  # how long to wait for the next request

    def run(self, request: AdminRequest) -> AdminReply:
        with self._running:
            return self._run(request)

    def close(self) -> None:
        """Wait for the request in progress, then release everything."""
        with self._running:
            self._release()

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
                    return UserErased(erase(self._settings, self._loading, project, user))
            case Delete(projects):
                with self._erasing:
                    return ProjectsDeleted(delete(self._settings, self._loading, projects))
        return Done()

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
