"""Wires the backup plan and the steps after a restore, if all engines are on servers."""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
import structlog

from mauve.config import Settings
from mauve.core.clock import SystemClock
from mauve.core.secret import Secret
from mauve.core.times import DAY_MS
from mauve.load.lag import oldest_waiting_at
from mauve.load.lease import TTL_S
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.server_backup import ServerPlaces
from mauve.stores.catalog.catalog import Catalog, mark_original
from mauve.stores.imports import source_of
from mauve.stores.ledger import LoadStep
from mauve.stores.ledger.loading import (
    LeaseStore,
    LoadLedger,
    raise_import_number,
    raise_outbox_head,
    skip_lost_records,
    unknown_imports,
)
from mauve.stores.log import MIXED_STREAM, LogReader
from mauve.stores.warehouse.server.server import ServerAddress, address_from
from mauve.stores.warehouse.server.warehouse import last_received_at, last_stored_numbers, recount_ids
from mauve.wiring.bootstrap import prepare, prepare_databases
from mauve.wiring.clickhouse import prepare_warehouse
from mauve.wiring.cluster import check_owner, processes_connected
from mauve.wiring.databases import (
    MAINTENANCE_STATEMENT_S,
    open_catalog_database,
    open_ledger_database,
    open_load_ledger,
)
from mauve.wiring.log import forget_streams, known_streams, open_log_reader
from mauve.wiring.maintenance import open_server_imports

ID_DAYS = 9  # how long ids are kept
_CLOCK_DIFFERENCE_MS_MAX: Final = 3_600_000  # between the machines that received the events
_CLOSING_S_MAX: Final = 2.0  # until servers notice that a process has ended
_LEASE_S_MAX: Final = TTL_S + 1.0
_LOOK_EVERY_S: Final = 0.2
_COUNTED_MAX: Final = 100_000  # records of a stream

log = structlog.get_logger()


def settle_lost_records(ledger: LoadLedger, reader: LogReader, address: ServerAddress, *, gives_up: bool) -> int:
    """Refuse if the log begins after the positions, unless `gives_up`; return the number of messages given up.

    Giving up moves the positions to the log's first record and drops an unfinished range, but not its stored rows. Ids
    are rebuilt from stored rows, because a lost event that is sent again must count.
    """
    positions = ledger.positions()
    lost = reader.lost_after(positions)
    messages = sum(each.messages for each in lost.values())
    if not lost:
        return 0
    if not gives_up:
        raise MaintenanceRefusedError(
            f"the log no longer holds {messages} message{'s' if messages > 1 else ''} of events that the backup lacks: "
            "restore a newer backup, or older streams with 'nats stream restore', "
            "or continue without them with 'mauve restore --servers --without-lost'"
        )
    recount_ids(address, SystemClock().now_ms() - ID_DAYS * DAY_MS)
    before = {stream: positions.get(stream, 0) for stream in lost}
    after = {stream: each.through for stream, each in lost.items()}
    ledger.finish(LoadStep(after, positions_before=before))
    log.error("log_records_given_up", messages=messages, streams=sorted(lost))
    return messages


class ReplacedStream(msgspec.Struct, frozen=True):
    """A lost stream on NATS. Its accepted but unstored events are lost, too."""

    stream: str
    loss: str
    last_stored_at: int | None  # epoch ms of receipt; None: no event of it is stored


class Reconciled(msgspec.Struct, frozen=True, omit_defaults=True):
    loads_again_since: int | None  # epoch ms; None: the log holds no unloaded events
    streams_replaced: tuple["ReplacedStream", ...] = ()
    lost_messages: int = 0  # given up
    imports_undone: tuple[str, ...] = ()  # those missing from the restored ledger


def server_places(settings: Settings) -> ServerPlaces:
    """Return the names used in the commands, without passwords."""
    from mauve.stores.log.nats.streams import STREAMS, stream_name  # noqa: PLC0415 - an extra

    url, address = _addresses(settings)
    nats = "" if settings.stream_url is None else settings.stream_url.reveal()
    return ServerPlaces(
        database=_without_password(url.reveal()),
        warehouse=address.database,
        on_cluster=address.layout.on_cluster,
        streams=tuple(stream_name(stream) for stream in STREAMS),
        nats=",".join(_without_password(each.strip()) for each in nats.split(",")),
        keep_hours=settings.stream_keep_hours,
    )


def reconcile(
    settings: Settings, *, new_streams: bool, gives_up_waiting: bool = False, without_lost: bool = False
) -> Reconciled:
    """Reconcile the warehouse with the positions in the ledger after a restore.

    With `new_streams`, replace only the streams on NATS that are missing or too old. Safe to repeat. Refuse while
    any machine serves, because the ids it relies on are replaced. Everything is checked before the first deletion.
    """
    _, address = _addresses(settings)
    identity = prepare_databases(settings)
    _refuse_while_served(settings)
    _check_servers(settings, identity)
    last_numbers = last_stored_numbers(address)
    streams = _Streams.find(settings, identity, last_numbers)
    if not new_streams:
        streams.refuse_lost()
    elif not gives_up_waiting:
        streams.refuse_waiting()
    replaced = _replace_lost(settings, address, streams)
    prepare(settings, may_be_copy=True)
    undone = _undo_unknown_imports(settings, address)
    with closing(open_ledger_database(settings)) as database, closing(open_log_reader(settings)) as log:
        given_up = settle_lost_records(LoadLedger(database), log, address, gives_up=without_lost)
        oldest_us = oldest_waiting_at(LoadLedger(database), log)
        since_ms = None if oldest_us is None else oldest_us // 1000
        if since_ms is not None:
            recount_ids(address, since_ms - _CLOCK_DIFFERENCE_MS_MAX)
        raise_outbox_head(database, last_numbers.get(MIXED_STREAM, 0))
    with closing(open_catalog_database(settings)) as database:
        mark_original(database, is_renewed=True)
    return Reconciled(since_ms, replaced, given_up, undone)


def _refuse_while_served(settings: Settings) -> None:
    """Refuse while a process is connected. A lease in the dump expires unless its loader is running."""
    gives_up_at = time.monotonic() + _LEASE_S_MAX
    with closing(open_ledger_database(settings)) as database:
        while (lease := LeaseStore(database).current()) is not None:
            if time.monotonic() > gives_up_at:
                raise MaintenanceRefusedError(
                    f"the machine {lease.holder} is loading: stop every service, and run this again"
                )
            time.sleep(_LOOK_EVERY_S)
    gives_up_at = time.monotonic() + _CLOSING_S_MAX
    while found := processes_connected(settings):
        if time.monotonic() > gives_up_at:
            raise MaintenanceRefusedError(f"{found[0]}: stop every service first")
        time.sleep(_LOOK_EVERY_S)


def _check_servers(settings: Settings, identity: str) -> None:
    """Raise if a server is unusable or belongs to another installation."""
    from mauve.stores.log.nats.servers import check_servers  # noqa: PLC0415 - an extra

    with closing(open_catalog_database(settings)) as database:
        installation = Catalog(database).installation
        check_owner(settings, installation)
        prepare_warehouse(settings, identity, installation)
    if settings.stream_url is not None:
        check_servers(settings.stream_url, settings.stream_monitor_urls, all_of_them=True)


@dataclass(frozen=True, slots=True)
class _Streams:
    """The state of the streams on NATS."""

    url: Secret
    last_numbers: Mapping[int, int]  # of the records that are loaded or stored
    lost: Mapping[int, str]  # why
    left: Mapping[int, int]  # the end of each lost one that exists

    @staticmethod
    def find(settings: Settings, identity: str, stored: Mapping[int, int]) -> "_Streams":
        from mauve.stores.log.nats.servers import find_streams  # noqa: PLC0415 - an extra
        from mauve.stores.log.nats.streams import MISSING, STREAMS  # noqa: PLC0415 - an extra

        url = settings.stream_url or Secret("")
        with open_load_ledger(settings) as ledger:
            loaded = ledger.positions()
        with closing(open_catalog_database(settings)) as database:
            known = known_streams(Catalog(database).installation)
        last_numbers = {stream: max(stored.get(stream, 0), loaded.get(stream, 0)) for stream in STREAMS}
        found = find_streams(url, identity, known, last_numbers)
        lost = {stream: each.loss for stream, each in found.items() if each.loss is not None}
        # A dump may predate a stream.
        lost |= {stream: MISSING for stream, each in found.items() if each.end is None and last_numbers[stream]}
        left = {stream: end for stream in lost if (end := found[stream].end) is not None}
        return _Streams(url, last_numbers, lost, left)

    def refuse_lost(self) -> None:
        """Refuse streams that would reuse the numbers of stored records: new records would never be stored."""
        from mauve.stores.log.nats.streams import GIVE_UP, stream_name  # noqa: PLC0415 - an extra

        for stream, loss in self.lost.items():
            raise MaintenanceRefusedError(f"the stream {stream_name(stream)} at MAUVE_STREAM_URL {loss}: {GIVE_UP}")

    def refuse_waiting(self) -> None:
        """Refuse to delete acknowledged records that are not stored."""
        from mauve.stores.log.nats.log_reader import NatsLogReader  # noqa: PLC0415 - an extra

        waiting = 0
        with closing(NatsLogReader(self.url)) as log:
            for stream, end in self.left.items():
                records = log.records(stream, self.last_numbers[stream], end)
                waiting += sum(1 for _ in islice(records, _COUNTED_MAX))
        if waiting:
            raise MaintenanceRefusedError(
                f"recreated streams hold {waiting}{' or more' if waiting >= _COUNTED_MAX else ''} "
                "batches of acknowledged events, which cannot be loaded: add --yes to delete them"
            )


def _replace_lost(settings: Settings, address: ServerAddress, streams: _Streams) -> tuple[ReplacedStream, ...]:
    """Delete the remains of lost streams. New ones number their records after those already loaded or stored."""
    from mauve.stores.log.nats.streams import stream_name  # noqa: PLC0415 - an extra

    if not streams.lost:
        return ()
    # A lost event that is sent again must count.
    recount_ids(address, SystemClock().now_ms() - ID_DAYS * DAY_MS)
    with closing(open_ledger_database(settings)) as database:
        skip_lost_records(database, {stream: streams.last_numbers[stream] for stream in streams.lost})
    with closing(open_catalog_database(settings)) as database:
        forget_streams(streams.url, streams.lost.keys(), Catalog(database).installation)
    replaced = tuple(
        ReplacedStream(stream_name(stream), loss, last_received_at(address, stream))
        for stream, loss in streams.lost.items()
    )
    log.error("log_streams_given_up", streams=[each.stream for each in replaced])
    return replaced


def _undo_unknown_imports(settings: Settings, address: ServerAddress) -> tuple[str, ...]:
    """Remove the rows of imports that began after the dump: a new import with the same number would adopt them.

    Their payments are not in the dump, so the files have to be imported again.
    """
    with (
        closing(open_ledger_database(settings, statement_s=MAINTENANCE_STATEMENT_S)) as database,
        open_server_imports(address) as warehouse,
    ):
        unknown = unknown_imports(database, warehouse.stored_imports())
        if unknown:
            # First, in case this is interrupted.
            raise_import_number(database, max(number for _, number in unknown))
        for project, number in unknown:
            warehouse.undo(project, number)
    return tuple(source_of(number) for _, number in unknown)


def _addresses(settings: Settings) -> tuple[Secret, ServerAddress]:
    if settings.database_url is None or settings.warehouse_url is None or settings.stream_url is None:
        raise MaintenanceRefusedError("some engines are in files: set the address of every server")
    return settings.database_url, address_from(settings.warehouse_url)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user = "" if parts.username is None else f"{parts.username}@"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, f"{user}{host}", parts.path, parts.query, ""))
