"""The checks of `mauve doctor`. They are read-only."""

import shutil
import sqlite3
import stat
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from operator import attrgetter
from typing import Final

from mauve.access.vault import VaultError
from mauve.config import Settings
from mauve.core.clock import SystemClock
from mauve.maintenance.backup_schedule import is_late
from mauve.maintenance.disk_space import format_bytes
from mauve.maintenance.retention import first_day_kept
from mauve.stores import ForeignDataError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.data_directory import gone_holder, holder_of
from mauve.stores.log import MIXED_STREAM
from mauve.wiring.backups import backup_state
from mauve.wiring.bootstrap import (
    RESTORED_COPY,
    check_database_server,
    check_vault,
    control_parts,
    is_copy,
    schema_revisions,
)
from mauve.wiring.clickhouse import check_warehouse_server, has_warehouse, warehouse_place
from mauve.wiring.cluster import accepting_addresses, is_shared, loading_now
from mauve.wiring.databases import open_catalog_database, open_load_ledger, stored_identity
from mauve.wiring.log import check_log, described_losses, losses, lost_streams, open_log_reader, stream_bytes_max
from mauve.wiring.maintenance import last_forgotten
from mauve.wiring.paths import catalog_path, has_data, master_key_path

_DISK_FREE_BYTES_MIN: Final = 1024**3
_EARLIEST_YEAR: Final = 2026
_CLOCK_DRIFT_MS_MAX: Final = 60_000
_HTTP_TIMEOUT_S: Final = 5.0
_NOT_LOADED_S_MAX: Final = 15.0  # Another loader takes over sooner.
_BEHIND_S_MAX: Final = 60.0
_GAVE_UP_S_MAX: Final = 30.0  # A failing loader retries sooner.
_CONNECTIONS_SHARE_MAX: Final = 0.8
_ADDRESSES_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    ok: bool
    detail: str
    advice: str = ""  # what to do; empty if ok


_Result = tuple[bool, str, str]  # whether it is ok, what was found, and what to do if it is not ok
_Check = Callable[[Settings], _Result]


def run_checks(settings: Settings) -> list[Finding]:
    """Run every check, even if some of them fail."""
    if not has_data(settings):
        advice = "check --data, or run 'mauve serve' to create it"
        return [
            _run_safely(_versions, settings),
            Finding("data directory", ok=False, detail=f"{settings.data.absolute()} holds no data", advice=advice),
        ]
    reasons = {server: reason for server in _SERVERS if (reason := _reason_against(server, settings)) is not None}
    if _POSTGRESQL not in reasons and settings.database_url is not None and schema_revisions(settings)[0] is None:
        return [
            _run_safely(_versions, settings),
            _not_set_up(settings),
            *(_unusable(each, reasons[each], {}) for each in reasons),
        ]
    checks = {check: needs for check, needs in _CHECKS.items() if check not in _checks_left_out(settings)}
    findings = [_run_safely(check, settings) for check, needs in checks.items() if reasons.keys().isdisjoint(needs)]
    findings += [_unusable(server, reason, checks) for server, reason in reasons.items()]
    return [replace(finding, advice="") if finding.ok else finding for finding in findings]


def _checks_left_out(settings: Settings) -> frozenset[_Check]:
    has_server = any(server.url(settings) is not None for server in _SERVERS)
    left_out = (frozenset() if is_shared(settings) else _SHARED_CHECKS) | (_FILE_CHECKS if has_server else frozenset())
    return left_out if settings.database_url is not None else left_out | {_connections}


def _not_set_up(settings: Settings) -> Finding:
    """Report an empty database: nothing else can be checked."""
    advice = (
        f"stop the service, then move the installation in {settings.data} to the servers with 'mauve move'"
        if catalog_path(settings.data).exists()
        else "start 'mauve serve': it creates the tables"
    )
    return Finding("installation", ok=False, detail="the database at MAUVE_DATABASE_URL is empty", advice=advice)


@dataclass(frozen=True, slots=True)
class _Server:
    """A server that some engines may be on. Checks that need it are skipped if it is unusable."""

    name: str
    setting: str
    url: Callable[[Settings], object]
    check: Callable[[Settings], object]


_POSTGRESQL: Final = _Server("PostgreSQL", "MAUVE_DATABASE_URL", attrgetter("database_url"), check_database_server)
_CLICKHOUSE: Final = _Server("ClickHouse", "MAUVE_WAREHOUSE_URL", attrgetter("warehouse_url"), check_warehouse_server)
_NATS: Final = _Server("NATS", "MAUVE_STREAM_URL", attrgetter("stream_url"), check_log)
_SERVERS: Final = (_POSTGRESQL, _CLICKHOUSE, _NATS)


def _reason_against(server: _Server, settings: Settings) -> str | None:
    """Return why a server is unusable, and what to do; None if it is usable or the engine is in files."""
    try:
        server.check(settings)
    except (StoreUnavailableError, UnsupportedServerError) as error:
        return str(error)
    return None


def _unusable(server: _Server, reason: str, checks: "_Checks") -> Finding:
    left_out = ", ".join(_name_of(check) for check, needs in checks.items() if server in needs)
    detail = f"cannot be used; not checked: {left_out}" if left_out else "cannot be used"
    return Finding(server.name, ok=False, detail=detail, advice=reason)


def _name_of(check: _Check) -> str:
    return check.__name__.strip("_").replace("_", " ")


def _run_safely(check: _Check, settings: Settings) -> Finding:
    try:
        return Finding(_name_of(check), *check(settings))
    except (UnsupportedServerError, ForeignDataError, VaultError) as error:
        return Finding(_name_of(check), ok=False, detail=str(error), advice=str(error))
    except (StoreUnavailableError, OSError) as error:
        used = [server.setting for server in _CHECKS[check] if server.url(settings) is not None]
        files = "fix the cause; restore from a backup if the file is damaged"
        advice = f"check the log of the server at {' and '.join(used)}" if used else files
        return Finding(_name_of(check), ok=False, detail=str(error), advice=advice)


def _versions(_settings: Settings) -> _Result:
    python = ".".join(map(str, sys.version_info[:3]))
    engines = ", ".join(f"{name} {version(name)}" for name in ("granian", "httptools", "sqlalchemy", "cryptography"))
    detail = f"mauve {version('mauve')}, Python {python}, SQLite {sqlite3.sqlite_version}, {engines}"
    return True, detail, ""


def _data_directory(settings: Settings) -> _Result:
    if not settings.data.exists():
        is_needed = any(server.url(settings) is None for server in _SERVERS)
        advice = "some engines are in files: check --data, or set the address of every server"
        return not is_needed, f"{settings.data} does not exist", advice
    mode = stat.S_IMODE(settings.data.stat().st_mode)
    private = mode & 0o077 == 0
    return private, f"{settings.data.absolute()}, mode {mode:04o}", f"others can read it: chmod 700 {settings.data}"


def _master_key(settings: Settings) -> _Result:
    if settings.master_key is not None:
        check_vault(settings)
        return True, "from MAUVE_MASTER_KEY, decrypts the stored secrets", ""
    path = master_key_path(settings.data)
    check_vault(settings)
    mode = stat.S_IMODE(path.stat().st_mode)
    private = mode & 0o077 == 0
    return private, f"{path}, mode {mode:04o}, decrypts the stored secrets", f"others can read it: chmod 600 {path}"


def _catalog(settings: Settings) -> _Result:
    if is_shared(settings) and is_copy(settings):
        return False, "restored or copied from another database", RESTORED_COPY
    found, wanted = schema_revisions(settings)
    place = "in a file" if settings.database_url is None else "on PostgreSQL"
    return (
        found == wanted or (found is not None and found > wanted and settings.database_url is not None),
        f"{place}, answers, revision {found}",
        "run 'mauve serve' once: it migrates the tables",
    )


def _queue(settings: Settings) -> _Result:
    with open_load_ledger(settings) as ledger, closing(open_log_reader(settings)) as log:
        is_full = log.largest_stream_bytes() > stream_bytes_max(settings)  # before the positions: trimming comes later
        losses_kept, positions = ledger.log_losses(), ledger.positions()
        dead_letters = ledger.dead_letter_count() - len(losses_kept)
        lost = sum(each.messages for each in log.lost_after(positions).values())
        files_lost = ", ".join(map(str, sorted(lost_streams(settings, positions))))
        waiting_bytes = log.backlog_bytes(positions) + ledger.waiting_bytes(positions.get(MIXED_STREAM, 0))
    lost_on_nats = losses(settings, stored_identity(settings) or "", positions)
    records = "1 record" if dead_letters == 1 else f"{dead_letters} records"
    waiting = f"{format_bytes(waiting_bytes)} waiting to be loaded, {records} could not be loaded"
    gone = f", {lost} message{'s were' if lost > 1 else ' was'} deleted before loading" if lost else ""
    gone += "".join(f", {each}" for each in (*lost_on_nats, *described_losses(losses_kept)))
    without = f", the files of stream {files_lost} are lost" if files_lost else ""
    detail = f"{waiting}{gone}{without}; {check_log(settings)}"
    advice = (
        "restore the folder 'log' if you have a copy; otherwise start 'mauve serve', which counts new events and "
        "records the loss in the ledger's table dead_letters"
        if files_lost
        else "restore the stream from a backup of NATS, or stop the service and give up its events with "
        "'mauve restore --servers --new-streams'; the other streams are written and loaded"
        if lost_on_nats
        else "events are refused until the loader catches up: check the core's log"
        if is_full
        else "after a restore, run 'mauve restore --servers'; otherwise they were deleted manually; loading continues"
        if lost
        else "see the ledger's table dead_letters, which holds each record and the reason; delete resolved rows"
        if dead_letters
        else "new events count; to clear this finding, delete the rows of these streams from the ledger's dead_letters"
    )
    is_ok = not (is_full or dead_letters or lost or files_lost or lost_on_nats or losses_kept)
    return is_ok, detail, advice


def _window(settings: Settings) -> _Result:
    """Report how far back the log reaches: it cannot complete an older backup."""
    with closing(open_log_reader(settings)) as log:
        found = log.reach()
    hours = settings.stream_keep_hours
    reach = "holds every event so far" if found.seconds is None else f"reaches back {found.seconds / 3600:.1f} hours"
    advice = f"it is full in less than {hours} hours: raise MAUVE_BACKLOG_MB, or back up more often"
    return not found.is_short, f"the log {reach}; loaded events are kept for {hours} hours", advice


def _loader(settings: Settings) -> _Result:
    found = loading_now(settings, SystemClock())
    waits = f"the oldest event has waited {found.waiting_s:.0f} s" if found.waiting_s else "no events are waiting"
    if found.machine is None:
        advice = "start 'mauve serve', or 'mauve serve --role loader', on a machine that can reach every server"
        detail = "no machine is loading"
        if found.renewed_s_ago < _GAVE_UP_S_MAX:
            detail = f"no machine is loading; one held the lease {found.renewed_s_ago:.0f} s ago and may be failing"
            advice = "look for 'load_failed' in the loaders' logs for the reason; if no loader is running, start one"
        return found.waiting_s <= _NOT_LOADED_S_MAX, f"{detail}; {waits}", advice
    name = f"this machine, {found.machine}," if found.is_this else f"the machine {found.machine}"
    detail = f"{name} is loading and renewed its lease {found.renewed_s_ago:.0f} s ago; {waits}"
    advice = (
        f"loading is behind or failing: look for 'load_failed' in the log of the machine {found.machine}, "
        "and check the load on ClickHouse"
    )
    return found.waiting_s <= _BEHIND_S_MAX, detail, advice


def _workers(settings: Settings) -> _Result:
    found = Counter(accepting_addresses(settings))
    if not found:
        is_served = loading_now(settings, SystemClock()).machine is not None
        advice = "no machine accepts events: start 'mauve serve', or 'mauve serve --role ingest'"
        return not is_served, "no process that accepts events is connected to NATS", advice
    places = ", ".join(f"{count} at {address}" for address, count in sorted(found.items())[:_ADDRESSES_SHOWN_MAX])
    more = "" if len(found) <= _ADDRESSES_SHOWN_MAX else f" and at {len(found) - _ADDRESSES_SHOWN_MAX} other addresses"
    return True, f"{found.total()} processes accept events: {places}{more}", ""


def _warehouse(settings: Settings) -> _Result:
    place = warehouse_place(settings)
    if has_warehouse(settings, stored_identity(settings)):
        return True, place, ""
    advice = "name the database of this installation in MAUVE_WAREHOUSE_URL, or run 'mauve serve' to create the tables"
    return False, f"{place}, in an empty database", advice


def _raw_events(settings: Settings) -> _Result:
    now_ms, days = SystemClock().now_ms(), settings.raw_retention_days
    with control_parts(settings) as parts:
        last = last_forgotten(parts)
    kept = f"kept for {days} days" if days else "kept forever"
    detail = kept if last is None else f"{kept}; anonymous before {last.before}, {last.events} of them in the last run"
    is_overdue = days and (last is None or last.before < first_day_kept(now_ms, days + 1).isoformat())
    is_running = holder_of(settings.data) is not None
    advice = "the service anonymizes them at startup and daily: set MAUVE_RAW_RETENTION_DAYS for it, too"
    return not (is_overdue and is_running), detail, advice


def _backups(settings: Settings) -> _Result:
    every_s = settings.backup.every_s
    if every_s is None:
        return True, "not made by the service; MAUVE_BACKUP_EVERY is not set", ""
    with control_parts(settings) as parts:
        state = backup_state(parts)
    now_ms = SystemClock().now_ms()
    age_s = None if state.made_at is None else (now_ms - state.made_at) / 1000
    last = "none so far" if age_s is None else f"the last is {age_s / 3600:.1f} hours old: {state.place}"
    failed = f"; failed {state.failures} times since: {state.reason}" if state.failures else ""
    advice = "fix the reason, then run 'mauve backup'" if failed else "start 'mauve serve': it makes one immediately"
    return not failed and not is_late(state, every_s * 1000, now_ms), f"{last}{failed}", advice


def _clock(settings: Settings) -> _Result:
    now_ms = SystemClock().now_ms()
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    with control_parts(settings) as parts:
        newest_ms = max((organization.created_at for organization in parts.catalog.organizations.list_all()), default=0)
    ok = now.year >= _EARLIEST_YEAR and newest_ms <= now_ms + _CLOCK_DRIFT_MS_MAX
    return ok, now.isoformat(timespec="seconds"), "the clock is slow: correct it, and synchronize it with NTP"


def _disk(settings: Settings) -> _Result:
    existing = next(path for path in (settings.data.absolute(), *settings.data.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    return free >= _DISK_FREE_BYTES_MIN, f"{free / 1024**3:.1f} GiB free", "free at least 1 GiB, or move the data"


def _connections(settings: Settings) -> _Result:
    with closing(open_catalog_database(settings)) as database:
        used, allowed = database.connections()
    detail = f"{used} of {allowed} connections to PostgreSQL in use by all programs"
    advice = "raise PostgreSQL's max_connections, or stop other programs that connect to it"
    return used <= _CONNECTIONS_SHARE_MAX * allowed, detail, advice


def _server(settings: Settings) -> _Result:
    holder = holder_of(settings.data)
    if holder is None:
        gone = gone_holder(settings.data)
        left = "" if gone is None else f"; process {gone.pid} was killed and left serve.lock behind, which is harmless"
        return True, f"no service runs on this directory{left}", ""
    try:
        with urllib.request.urlopen(f"{holder.url}/readyz", timeout=_HTTP_TIMEOUT_S) as reply:  # noqa: S310 - our own address
            detail = reply.read().decode()
            return True, f"process {holder.pid} at {holder.url}: {detail}", ""
    except (urllib.error.URLError, OSError) as error:
        return (
            False,
            f"process {holder.pid} at {holder.url}: {error}",
            "check its log; restart it if it does not recover",
        )


_Checks = Mapping[_Check, tuple[_Server, ...]]
_CHECKS: Final[_Checks] = {
    _versions: (),
    _data_directory: (),
    _master_key: (_POSTGRESQL,),
    _catalog: (_POSTGRESQL,),
    _connections: (_POSTGRESQL,),
    _queue: (_POSTGRESQL, _NATS),
    _window: (_POSTGRESQL, _NATS),
    _loader: (_POSTGRESQL, _NATS),
    _workers: (_POSTGRESQL, _NATS),
    _warehouse: (_POSTGRESQL, _CLICKHOUSE),
    _raw_events: (_POSTGRESQL,),
    _backups: (),
    _clock: (_POSTGRESQL,),
    _disk: (),
    _server: (),
}
"""Each check with the servers that it needs, if its engines are on servers."""
_SHARED_CHECKS: Final = frozenset({_window, _loader, _workers})
"""Checks of all machines that share the servers."""
_FILE_CHECKS: Final = frozenset({_backups})
"""Checks of an installation with all engines in files."""
