"""Wires the machines of an installation: this one's name, who owns local engines, who loads and accepts events."""

import platform
import re
import secrets
import socket
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from mauve.config import Settings
from mauve.core.clock import Clock
from mauve.load.lag import oldest_waiting_at
from mauve.load.lease import TTL_S
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.stores import ForeignDataError
from mauve.stores.catalog.catalog import Installation
from mauve.stores.data_directory import write_private_file
from mauve.stores.ledger.loading import LeaseStore, LoadLedger
from mauve.stores.sql.migrate import CATALOG, program_name
from mauve.wiring.databases import open_catalog_database, open_ledger_database
from mauve.wiring.log import open_log_reader
from mauve.wiring.paths import machine_path

_OWNER: Final = "owner"  # the machine with local engines; absent or empty: every engine is on a server
_SETUP_LINK_OF: Final = "setup_link_of"  # expiry, machine and host name


def machine_of(settings: Settings) -> str:
    """Return this machine's name, unique among those that share servers. If lost, it is replaced: its claims expire."""
    path = machine_path(settings.data)
    if not path.exists():
        host = re.sub("[^A-Za-z0-9]", "-", socket.gethostname().partition(".")[0])  # for operators
        name = f"{secrets.token_hex(8)}-{host}"
        write_private_file(path, name.encode() + b"\n")
    return path.read_text().strip()


def claim_setup_link(settings: Settings, installation: Installation, now_ms: int, lifetime_ms: int) -> str | None:
    """Let this machine print a set-up link; if another machine's link is still valid, return its host name."""
    if settings.database_url is None:
        return None
    claim = f"{now_ms + lifetime_ms} {machine_of(settings)} {platform.node()}"
    expires_at, machine, host = installation.create(_SETUP_LINK_OF, claim).split(" ", 2)
    if machine != machine_of(settings) and now_ms < int(expires_at):
        return host
    installation.put(_SETUP_LINK_OF, claim)
    return None


def check_owner(settings: Settings, installation: Installation) -> None:
    """Raise if another machine has local engines: several machines need every engine on a server."""
    owner = installation.get(_OWNER)
    if settings.database_url is not None and owner and owner != machine_of(settings):
        raise _owned_by(owner, settings)


def settle_owner(settings: Settings, installation: Installation) -> None:
    """Record that this machine owns the installation because it has a local engine, or that no machine does."""
    if settings.database_url is None:
        return
    check_owner(settings, installation)
    if settings.warehouse_url is not None and settings.stream_url is not None:
        if installation.get(_OWNER):
            installation.put(_OWNER, "")
        return
    owner = installation.create(_OWNER, machine_of(settings))
    if not owner:
        installation.put(_OWNER, machine_of(settings))
    elif owner != machine_of(settings):
        raise _owned_by(owner, settings)


def _owned_by(owner: str, settings: Settings) -> ForeignDataError:
    return ForeignDataError(
        f"the machine {owner} keeps data of this installation in its --data directory, but several machines need "
        "every engine on a server: on that machine, stop the service, set MAUVE_WAREHOUSE_URL and MAUVE_STREAM_URL "
        f"and run 'mauve move'; if its data is lost, write '{owner}' to {machine_path(settings.data)} to replace it"
    )


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
        lease, renewed_s_ago = leases.current(), max(0.0, leases.renewed_s_ago(TTL_S))
        oldest = oldest_waiting_at(LoadLedger(database), log)
    waiting_s = 0.0 if oldest is None else max(0.0, (clock.now_us() - oldest) / 1_000_000)
    if lease is None:
        return Loading(None, is_this=False, renewed_s_ago=renewed_s_ago, waiting_s=waiting_s)
    path = machine_path(settings.data)
    is_this = path.exists() and path.read_text().strip() == lease.holder
    return Loading(lease.holder, is_this=is_this, renewed_s_ago=renewed_s_ago, waiting_s=waiting_s)


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
