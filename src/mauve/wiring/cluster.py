"""Wires cluster status for operators: which machine loads, and which ones accept events."""

from contextlib import closing
from dataclasses import dataclass

from mauve.config import Settings
from mauve.core.clock import Clock
from mauve.load.lag import oldest_waiting_at
from mauve.load.lease import TTL_S
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores.ledger.loading import LeaseStore, LoadLedger
from mauve.stores.sql.migrate import CATALOG, program_name
from mauve.wiring.databases import open_catalog_database, open_ledger_database
from mauve.wiring.log import open_log_reader
from mauve.wiring.paths import machine_path


@dataclass(frozen=True, slots=True)
class Loading:
    """Which machine loads, and its lag."""

    machine: str | None  # its id and host name; None: no machine
    is_this: bool
    renewed_s_ago: float  # of the last lease, if no machine loads now
    waiting_s: float  # how long the oldest event has been waiting


def is_shared(settings: Settings) -> bool:
    """Return whether several machines may serve this installation: every engine is on a server."""
    return None not in (settings.database_url, settings.warehouse_url, settings.stream_url)


def has_servers(settings: Settings) -> bool:
    return any((settings.database_url, settings.warehouse_url, settings.stream_url))


def loading_now(settings: Settings, clock: Clock) -> Loading:
    with closing(open_ledger_database(settings)) as database, closing(open_log_reader(settings)) as log:
        leases = LeaseStore(database)
        turn, renewed_s_ago = leases.current(), max(0.0, leases.renewed_s_ago(TTL_S))
        oldest = oldest_waiting_at(LoadLedger(database), log)
    waiting_s = 0.0 if oldest is None else max(0.0, (clock.now_us() - oldest) / 1_000_000)
    if turn is None:
        return Loading(None, is_this=False, renewed_s_ago=renewed_s_ago, waiting_s=waiting_s)
    path = machine_path(settings.data)
    is_this = path.exists() and path.read_text().strip() == turn.holder
    return Loading(turn.holder, is_this=is_this, renewed_s_ago=renewed_s_ago, waiting_s=waiting_s)


def processes_connected(settings: Settings) -> list[str]:
    """Describe what every other Mauve process, of any role, is connected to.

    Raise if a server does not answer. This process must not be connected to NATS.
    """
    from mauve.stores.log.nats.log_writer import CLIENT_NAME  # noqa: PLC0415 - an extra
    from mauve.stores.log.nats.monitors import connected_now  # noqa: PLC0415 - an extra

    with closing(open_catalog_database(settings)) as database, database.reading() as tx:
        programs = [name for name in database.programs(tx) if name.startswith("mauve ")]
    if program_name(CATALOG) in programs:
        programs.remove(program_name(CATALOG))  # this connection
    found = [f"a process uses PostgreSQL as '{name}'" for name in programs]
    if settings.stream_url is None:
        return found
    connected = connected_now(settings.stream_url, settings.stream_monitor_urls)
    if connected.silent:
        raise MaintenanceRefusedError(
            f"the NATS monitoring endpoint {connected.silent[0]} does not answer, so it is unknown whether a "
            "process uses that server: start it, or name all monitoring endpoints in MAUVE_STREAM_MONITOR_URL"
        )
    accepting = [f"a process at {each.ip} accepts events" for each in connected.processes if each.name == CLIENT_NAME]
    return [*accepting, *(f"a process at {each.ip} uses NATS as '{each.name}'" for each in connected.processes), *found]


def accepting_addresses(settings: Settings) -> list[str]:
    """Return the address of each process that can append to the log on NATS."""
    from mauve.stores.log.nats.log_writer import CLIENT_NAME  # noqa: PLC0415 - an extra
    from mauve.stores.log.nats.monitors import connected_now  # noqa: PLC0415 - an extra

    if settings.stream_url is None:
        return []
    found = connected_now(settings.stream_url, settings.stream_monitor_urls).processes
    return [each.ip for each in found if each.name == CLIENT_NAME]
