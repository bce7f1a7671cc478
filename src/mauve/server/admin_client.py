"""How a command reaches the data: through the core of the running service, or alone when there is none."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from mauve.config import Settings
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.maintenance.backup import Standstill
from mauve.maintenance.erase import Erased
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.server.admin_socket import (
    Erase,
    ErasedPerson,
    Errand,
    Failed,
    Freeze,
    FrozenAt,
    GoOn,
    Refused,
    Result,
    Thaw,
    erase,
    socket_address,
)
from mauve.stores.data_directory import hold, holder_of
from mauve.stores.maintenance import Frozen, WarehouseMaintenance
from mauve.wiring.maintenance import drop_frozen, open_warehouse_maintenance
from mauve.wiring.warehouse import open_load_parts

_results: Final = msgspec.json.Decoder(Result)


@contextmanager
def standstill(settings: Settings) -> Iterator[Standstill]:
    """Let the loader stand still, wherever it runs, and freeze the warehouse."""
    if holder_of(settings.data) is None:
        with _alone(settings), closing(open_warehouse_maintenance(settings.data)) as upkeep:
            try:
                yield _StandstillHere(upkeep)
            finally:
                upkeep.thaw()
    else:
        with closing(_Core(settings.data)) as core:
            yield _StandstillThere(core)


def erase_person(settings: Settings, project: str, user: str) -> Erased:
    if holder_of(settings.data) is None:
        return _erase_alone(settings, project, user)
    with closing(_Core(settings.data)) as core:
        result = core.ask(Erase(project, user))
    if not isinstance(result, ErasedPerson):
        raise MaintenanceFailedError("the core gave no answer: run the command again")
    return result.what


def _erase_alone(settings: Settings, project: str, user: str) -> Erased:
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(CollectorRegistry()))
    with _alone(settings), closing(loading):
        return erase(settings, loading, project, user)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Keep services from starting on the directory during the block."""
    with hold(settings.data) as lock:
        lock.truncate(0)  # It names a server that is gone.
        drop_frozen(settings)
        yield


class _StandstillHere:
    """No service runs: nothing moves anyway, and nobody takes away what is frozen."""

    def __init__(self, upkeep: WarehouseMaintenance) -> None:
        self.frozen = upkeep.freeze()

    def go_on(self) -> None:
        pass

    def finish(self) -> None:
        pass


class _StandstillThere:
    """The core stands still for us until it is told to go on, or until we are gone."""

    def __init__(self, core: "_Core") -> None:
        self._core = core
        result = core.ask(Freeze())
        if not isinstance(result, FrozenAt):
            raise MaintenanceFailedError("the core gave no answer: run the command again")
        folders = {table: Path(folder) for table, folder in result.folders.items()}
        self.frozen = Frozen(folders, result.events)

    def go_on(self) -> None:
        self._core.ask(GoOn())

    def finish(self) -> None:
        self._core.ask(Thaw())


class _Core:
    """A conversation with the core."""

    def __init__(self, data: Path) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._connection.connect(socket_address(data, folder))
        except OSError:
            self._connection.close()
            raise MaintenanceFailedError("the core does not answer: wait some seconds, or look at its log") from None
        finally:
            os.close(folder)
        self._answers = self._connection.makefile("rb")

    def close(self) -> None:
        self._answers.close()
        self._connection.close()

    def ask(self, errand: Errand) -> Result:
        try:
            self._connection.sendall(msgspec.json.encode(errand) + b"\n")
            line = self._answers.readline()
        except OSError:
            line = b""
        if not line:
            raise MaintenanceFailedError(
                "the core has stopped, or has waited for too long: see that it runs, and begin again"
            )
        result: Result = _results.decode(line)
        if isinstance(result, Refused):
            raise MaintenanceRefusedError(result.reason)
        if isinstance(result, Failed):
            raise MaintenanceFailedError(f"the core could not do it ({result.reason}): look at its log, then try again")
        return result
