"""How commands access the stores: through the core of a running service, or directly if there is none."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.msgpack import Decoder
from prometheus_client import CollectorRegistry

from mauve.config import Settings
from mauve.imports.chunks import packed
from mauve.load.runner import LoadMetrics, LoadRunner
from mauve.maintenance.backup import LoaderPause
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.server.admin_socket import (
    LENGTH_BYTES,
    OPERATIONS,
    SOCKET,
    Reply,
    Request,
    StoreOperations,
    encode,
    framed,
    socket_address,
)
from mauve.stores.data_directory import hold, holder_of
from mauve.stores.imports import ImportWarehouse, StoredRows
from mauve.stores.warehouse import EventRows
from mauve.wiring.cluster import is_shared
from mauve.wiring.maintenance import drop_frozen
from mauve.wiring.warehouse import open_load_parts

_replies = Decoder(Reply)


@contextmanager
def store_operations(settings: Settings) -> Iterator[StoreOperations]:
    """Run operations in the core of the running service, or here: then no service can start on the directory."""
    if _has_core(settings):
        with closing(CoreConnection(settings.data)) as core:
            yield cast("StoreOperations", core)
        return
    loading = LoadRunner(lambda: open_load_parts(settings), LoadMetrics(CollectorRegistry()))
    with _exclusive(settings), closing(loading), closing(StoreOperations(settings, loading)) as here:
        yield here


@contextmanager
def pause_loader(settings: Settings) -> Iterator[LoaderPause]:
    """Pause the loader, if a service is running, and freeze the warehouse."""
    with store_operations(settings) as stores:
        yield LoaderPause(stores.freeze(), stores.resume, stores.release)


@contextmanager
def import_warehouse(settings: Settings) -> Iterator[ImportWarehouse]:
    with store_operations(settings) as stores:
        yield _Imports(stores)


class _Imports:
    """The warehouse for imports, which may be in the core."""

    def __init__(self, stores: StoreOperations) -> None:
        self._stores = stores
        self.row_count = stores.row_count
        self.undo = stores.undo

    def store(self, number: int, rows: EventRows) -> StoredRows:
        return self._stores.store_packed(number, packed(rows))


def _has_core(settings: Settings) -> bool:
    """Return whether a process that accepts admin requests is running on the directory."""
    return holder_of(settings.data) is not None and (not is_shared(settings) or (settings.data / SOCKET).exists())


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


class CoreConnection:
    """A connection to the core's admin socket. It has the methods of `StoreOperations`."""

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

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in OPERATIONS:
            raise AttributeError(name)
        return partial(self._ask, name)

    def _ask(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - what the operation returns
        """Return the result of an operation of the core."""
        try:
            reply = _replies.decode(self.send(name, arguments))
            if reply.refused is not None:
                raise MaintenanceRefusedError(reply.refused)
            if reply.failed is not None:
                raise MaintenanceFailedError(f"the core failed ({reply.failed}): check its log, then try again")
            return OPERATIONS[name].result.decode(reply.value)
        except msgspec.MsgspecError:
            raise MaintenanceFailedError(
                "the core sent an unexpected reply: use the running release's command"
            ) from None

    def send(self, name: str, arguments: tuple[object, ...] = ()) -> bytes:
        """Send a request and return the reply, encoded."""
        try:
            self._connection.sendall(framed(Request(name, msgspec.Raw(encode(arguments)))))
            size = int.from_bytes(self._replies.read(LENGTH_BYTES))
            content = self._replies.read(size)
        except OSError:
            size, content = 0, b""
        if not size or len(content) < size:
            raise MaintenanceFailedError(
                "the core stopped or timed out waiting for this command: check that it is running, then try again"
            )
        return content
