"""What commands ask of the running core, over a socket in the data directory that only its owner can open.

A line of JSON asks, a line answers, as long as the command is connected. What was held for it is let go of when
it is gone, however it went.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import msgspec
import structlog

from mauve.config import Settings
from mauve.load.runner import LoadRunner
from mauve.maintenance.erase import Erased, erase_user
from mauve.stores import StoreUnavailableError
from mauve.stores.warehouse import WarehouseUnavailableError
from mauve.wiring.maintenance import open_ledger_maintenance, open_log_maintenance, open_warehouse_maintenance

STANDSTILL_S_MAX: Final = 600.0
_SOCKET: Final = "core.sock"
_SOCKET_PATH_BYTES_MAX: Final = 100
_PRIVATE_FILE: Final = 0o600

log = structlog.get_logger()


class Freeze(msgspec.Struct, frozen=True, tag="freeze"):
    """Stand still, and freeze the warehouse."""


class GoOn(msgspec.Struct, frozen=True, tag="go_on"):
    """Load again; what is frozen stays so."""


class Thaw(msgspec.Struct, frozen=True, tag="thaw"):
    """Let go of what is frozen."""


class Erase(msgspec.Struct, frozen=True, tag="erase"):
    project: str
    user: str


class FrozenAt(msgspec.Struct, frozen=True, tag="frozen"):
    folders: dict[str, str]
    events: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    pass


class ErasedPerson(msgspec.Struct, frozen=True, tag="erased"):
    what: Erased


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """It cannot be done now. The reason says what to do."""

    reason: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It was tried, and an engine or the disk is in trouble."""

    reason: str


Errand = Freeze | GoOn | Thaw | Erase
Result = FrozenAt | Done | ErasedPerson | Refused | Failed
_errands: Final = msgspec.json.Decoder(Errand)


def socket_address(data: Path, folder: int) -> str:
    """Return the socket's address; `folder` is the open data directory, for paths too long for an address."""
    path = str(data.absolute() / _SOCKET)
    return path if len(path.encode()) < _SOCKET_PATH_BYTES_MAX else f"/proc/self/fd/{folder}/{_SOCKET}"


class AdminSocket:
    """Lets commands in while the core runs."""

    def __init__(self, settings: Settings, loading: LoadRunner) -> None:
        self._settings = settings
        self._loading = loading
        self._freezing = threading.Lock()  # one backup at a time
        self._erasing = threading.Lock()  # one person at a time
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin to listen. Where that is impossible the core goes on without: only some commands need it."""
        try:
            self._server = await asyncio.start_unix_server(self._welcome, sock=_listening_at(self._settings.data))
        except OSError as error:
            advice = "stop the service for backups and erasure, or give it a data directory with a shorter path"
            log.warning("errands_not_taken", reason=str(error), advice=advice)

    async def close(self) -> None:
        """Let nobody in any more, and everybody go."""
        if self._server is None:
            return
        self._server.close()
        (self._settings.data / _SOCKET).unlink(missing_ok=True)
        for conversation in self._conversations:
            conversation.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = asyncio.get_running_loop().create_task(self._attend(reader, writer))
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = Conversation(self._settings, self._loading, self._freezing, self._erasing)
        try:
            while line := await asyncio.wait_for(reader.readline(), conversation.patience_s):
                result = await asyncio.to_thread(_result_of, conversation.run, _errands.decode(line))
                writer.write(msgspec.json.encode(result) + b"\n")
                await writer.drain()
        except TimeoutError:
            log.warning("standstill_ended", advice="a command held loading up for too long: see whether it hangs")
        except OSError:
            pass  # The command is gone, and needs no answer.
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("errand_not_understood", reason=str(error), advice="run commands of the release that serves")
        finally:
            writer.close()
            await asyncio.to_thread(conversation.close)


def _result_of(run: Callable[[Errand], Result], errand: Errand) -> Result:
    try:
        return run(errand)
    except (WarehouseUnavailableError, StoreUnavailableError, OSError) as error:
        log.warning("errand_failed", errand=type(errand).__name__.lower(), reason=str(error))
        return Failed(str(error))


class Conversation:
    """With one command: what it has asked for, and what is held for it."""

    def __init__(
        self, settings: Settings, loading: LoadRunner, freezing: threading.Lock, erasing: threading.Lock
    ) -> None:
        self._settings = settings
        self._loading = loading
        self._freezing = freezing
        self._erasing = erasing
        self._frozen = ExitStack()
        self._still = ExitStack()
        self._turn = threading.Lock()
        self.patience_s: float | None = None  # how long the next errand may take to come

    def run(self, errand: Errand) -> Result:
        with self._turn:
            return self._run(errand)

    def close(self) -> None:
        """Let go of everything, when the errand under way has ended."""
        with self._turn:
            self._let_go()

    def _run(self, errand: Errand) -> Result:
        match errand:
            case Freeze():
                return self._freeze()
            case GoOn():
                self._go_on()
            case Thaw():
                self._let_go()
            case Erase(project, user):
                with self._erasing:
                    return ErasedPerson(erase(self._settings, self._loading, project, user))
        return Done()

    def _go_on(self) -> None:
        self._still.close()
        self.patience_s = None

    def _let_go(self) -> None:
        self._go_on()
        self._frozen.close()

    def _freeze(self) -> Result:
        if not self._freezing.acquire(blocking=False):
            return Refused("another backup is being made: wait for it")
        self._frozen.callback(self._freezing.release)
        upkeep = self._frozen.enter_context(closing(open_warehouse_maintenance(self._settings.data)))
        self._still.enter_context(self._loading.paused())
        self.patience_s = STANDSTILL_S_MAX
        self._frozen.callback(upkeep.thaw)
        frozen = upkeep.freeze()
        return FrozenAt({table: str(folder) for table, folder in frozen.folders.items()}, frozen.events)


def erase(settings: Settings, loading: LoadRunner, project: str, user: str) -> Erased:
    """Erase a person from every store, in the process that has the warehouse open."""
    with (
        closing(open_warehouse_maintenance(settings.data)) as warehouse,
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


def _listening_at(data: Path) -> socket.socket:
    (data / _SOCKET).unlink(missing_ok=True)  # left by a core that was killed: there is one at a time
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(socket_address(data, folder))
        (data / _SOCKET).chmod(_PRIVATE_FILE)
    except OSError:
        listening.close()
        raise
    finally:
        os.close(folder)
    return listening
