"""Wires what processes share to accept events: edge, accepted counts, presence. In files, or on NATS servers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final, NoReturn

from mauve.config import Settings
from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError, UnsupportedServerError
from mauve.stores.edge import EdgePublisher, EdgeReader, PublishedRecord
from mauve.stores.localdisk.edge import SqliteEdge
from mauve.stores.localdisk.presence import FilePresence
from mauve.stores.localdisk.usage import FileAcceptedCounts
from mauve.stores.usage import AcceptedExchange
from mauve.wiring.machine import machine_of
from mauve.wiring.paths import accepted_path, edge_copy_path, edge_path

_PREPARE_S_MAX: Final = 20.0
_BUSY_TIMEOUT_S: Final = 0.4  # shorter than the timeout of publishing

OpenEdge = Callable[[Settings, Callable[[], str | None]], AbstractContextManager[EdgePublisher]]

# NATS is imported where its URL is set: its package is an extra.


def prepare_edge(settings: Settings, identity: str) -> None:
    """Create what the edge needs on NATS servers; raise if they belong to another installation."""
    if settings.stream_url is None:
        return
    machine_of(settings)
    try:
        _create_buckets(settings.stream_url, identity)
    except (StoreUnavailableError, UnsupportedServerError) as error:
        raise UnsupportedServerError(f"NATS at MAUVE_STREAM_URL cannot be used: {error}") from error


def drop_edge(url: Secret, identity: str) -> None:
    """Delete what was published, after a restore of the catalog: the catalog has to be published again."""
    from mauve.stores.nats.bucket import BucketThread  # noqa: PLC0415 - an extra
    from mauve.stores.nats.edge import BUCKET  # noqa: PLC0415 - an extra

    with closing(BucketThread(url, BUCKET, "restore")) as thread:
        thread.run(thread.bucket.drop(identity), _PREPARE_S_MAX)


@contextmanager
def open_edge_publisher(settings: Settings, identity: Callable[[], str | None]) -> Iterator[EdgePublisher]:
    if settings.stream_url is None:
        with closing(_open_file(settings)) as file:
            yield file
        return
    from mauve.stores.nats.edge import NatsEdgePublisher  # noqa: PLC0415 - an extra

    with closing(NatsEdgePublisher(settings.stream_url, identity)) as publisher:
        yield publisher


def why_nats_is_away(settings: Settings) -> str | None:
    """Ask NATS once, and return why it does not answer in time; None if it does, or is not used."""
    if settings.stream_url is None:
        return None
    from mauve.stores.nats.servers import check_answer  # noqa: PLC0415 - an extra

    try:
        check_answer(settings.stream_url)
    except StoreUnavailableError as error:
        return str(error)
    return None


class AbsentEdge:
    """An edge that is known to be away: every call fails at once."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def publish(self, records: Sequence[PublishedRecord]) -> str:
        del records
        self._fail()

    def edge_id(self) -> str:
        self._fail()

    def _fail(self) -> NoReturn:
        raise StoreUnavailableError(self._reason)


def open_edge_reader(settings: Settings, process: int) -> EdgeReader:
    if settings.stream_url is None:
        return _open_file(settings)
    from mauve.stores.nats.edge import NatsEdgeReader  # noqa: PLC0415 - an extra

    return NatsEdgeReader(settings.stream_url, copy=_open_copy(edge_copy_path(settings.data, process)))


def may_outlive_edge(settings: Settings) -> bool:
    """Return whether a process that is cut off from the edge may still reach the catalog and the ledger."""
    return settings.stream_url is not None and settings.database_url is not None


@contextmanager
def open_accepted_exchange(settings: Settings, process: int) -> Iterator[AcceptedExchange]:
    if settings.stream_url is None:
        yield FileAcceptedCounts(accepted_path(settings.data), process)
        return
    from mauve.stores.nats.accepted import NatsAcceptedCounts  # noqa: PLC0415 - an extra

    with closing(NatsAcceptedCounts(settings.stream_url, f"{machine_of(settings)}.{process}")) as exchange:
        yield exchange


@contextmanager
def open_presence(settings: Settings, process: int) -> Iterator[Callable[[], int]]:
    """Yield a function that notes a use of a shared limit, and counts the processes of all machines that use it."""
    if settings.stream_url is None:
        with closing(FilePresence(accepted_path(settings.data), process)) as file:
            yield file.use
        return
    from mauve.stores.nats.presence import NatsPresence  # noqa: PLC0415 - an extra

    with closing(NatsPresence(settings.stream_url, f"{machine_of(settings)}.{process}")) as presence:
        yield presence.use


def _open_file(settings: Settings) -> SqliteEdge:
    return SqliteEdge(edge_path(settings.data), busy_timeout_s=_BUSY_TIMEOUT_S)


def _open_copy(path: Path) -> SqliteEdge | None:
    try:
        return SqliteEdge(path, busy_timeout_s=_BUSY_TIMEOUT_S)
    except StoreUnavailableError:
        path.unlink(missing_ok=True)  # It is damaged; the next start has a new one.
        return None


def _create_buckets(url: Secret, identity: str) -> None:
    try:
        from mauve.stores.nats import accepted, edge  # noqa: PLC0415 - an extra
        from mauve.stores.nats.bucket import Bucket  # noqa: PLC0415 - an extra
        from mauve.stores.nats.connection import Connection, LoopThread  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedServerError("the package nats-py is missing: install mauve[nats]") from error

    async def create() -> None:
        connection = Connection(url, "mauve")
        try:
            await Bucket(connection, edge.BUCKET).create(identity)
            await Bucket(connection, accepted.BUCKET).create(identity, accepted.TTL_S)
        finally:
            await connection.close()

    with closing(LoopThread("prepare-edge")) as thread:
        thread.run(create(), _PREPARE_S_MAX)
