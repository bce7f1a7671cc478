"""The settings, read from environment variables. No other module reads the environment."""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mauve.core.organization import Quotas
from mauve.core.secret import Secret
from mauve.secret_file import read_secret_file


class SettingError(Exception):
    """A setting is invalid. The message names it and says which values it takes."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable, as `mauve serve --help` lists it."""

    name: str
    default: str
    meaning: str


SETTINGS: Final = (
    Setting("MAUVE_DATA", "./mauve-data", "the data directory"),
    Setting("MAUVE_HOST", "127.0.0.1", "the address to listen on"),
    Setting("MAUVE_PORT", "8080", "the port of dashboard and API; 0 takes a free one"),
    Setting("PORT", "8080", "the same, where MAUVE_PORT is not set: hosting platforms set it"),
    Setting("MAUVE_INGEST_PORT", "8081", "the ingest workers' own port; 0 takes a free one"),
    Setting("MAUVE_WORKERS", "half the cores, at least 1", "number of ingest workers"),
    Setting("MAUVE_PUBLIC_URL", "http://HOST:PORT", "the address at which users reach the service"),
    Setting("MAUVE_PUBLIC_INGEST_URL", "MAUVE_PUBLIC_URL", "the address that pages show for events and webhooks"),
    Setting("MAUVE_PROXIES", "0", "how many addresses your proxies append to X-Forwarded-For"),
    Setting("MAUVE_CONNECTIONS_PER_ADDRESS", "1536", "connections per address and process; 0 or a proxy: no limit"),
    Setting("MAUVE_MASTER_KEY", "the file master.key", "base64 of 32 bytes; encrypts webhook secrets"),
    Setting("MAUVE_DATABASE_URL", "SQLite files", "postgresql://USER:PASSWORD@HOST/DATABASE: catalog and ledger"),
    Setting("MAUVE_WAREHOUSE_URL", "chDB files", "clickhouse://USER:PASSWORD@HOST:8123/DATABASE: events, user counts"),
    Setting("MAUVE_STREAM_URL", "files", "nats://A:4222,nats://B:4222,nats://C:4222: queued events"),
    Setting("MAUVE_STREAM_MONITOR_URL", "port 8222 of each host", "where each NATS server tells how it syncs"),
    Setting("MAUVE_STREAM_KEEP_HOURS", "48", "hours that NATS keeps loaded events, to load them again after a restore"),
    Setting("MAUVE_CATALOG_TIMEOUT_SECONDS", "4", "how long a control request may take before it gets 502"),
    Setting("MAUVE_INGEST_FLUSH_SECONDS", "2", "seconds until an event is stored, at most, 0.2 to 30"),
    Setting("MAUVE_BACKLOG_MB", "10240", "how much a worker, or NATS in all, may queue before events get 503"),
    Setting("MAUVE_SEGMENT_MB", "32", "the size of a queue file; each process keeps two or three"),
    Setting("MAUVE_PUBLISHABLE_EVENTS_PER_SECOND", "1000", "events per second and publishable key, in total"),
    Setting("MAUVE_PUBLISHABLE_BYTES_PER_SECOND", "2097152", "the same in bytes of uncompressed JSON"),
    Setting("MAUVE_APPS_PER_ORGANIZATION", "1000", "apps per organization"),
    Setting("MAUVE_KEYS_PER_APP", "100", "active keys per app; with revoked ones, 10 times as many"),
    Setting("MAUVE_KEYS_PER_ORGANIZATION", "5000", "the same for all apps of an organization together"),
    Setting("MAUVE_TOKENS_PER_ORGANIZATION", "200", "the same for control tokens of an organization"),
    Setting("MAUVE_MEMBERS_PER_ORGANIZATION", "500", "members per organization, including invited ones"),
    Setting("MAUVE_READ_CACHE_SECONDS", "300", "how long metric answers are cached; 0 is off"),
    Setting("MAUVE_READ_SECONDS", "10", "time limit of one metric read, 1 to 300"),
    Setting("MAUVE_RAW_RETENTION_DAYS", "0", "days until raw events lose user, id and props; 0 is never"),
    Setting("MAUVE_BACKUP_URL", "none", "where backups go: s3://BUCKET/PREFIX, or a directory"),
    Setting("MAUVE_BACKUP_EVERY", "never", "how often the service makes one, such as 24h, 30m or 7d"),
    Setting("MAUVE_BACKUP_KEEP", "7", "how many of them to keep"),
    Setting("MAUVE_BACKUP_ENCRYPT", "0", "1 encrypts them; needs MAUVE_MASTER_KEY, without which they are lost"),
    Setting("MAUVE_BACKUP_ENDPOINT", "AWS_ENDPOINT_URL", "the address of the store, if it is not Amazon's"),
    Setting("MAUVE_BACKUP_REGION", "AWS_REGION", "the region of the bucket"),
    Setting("MAUVE_BACKUP_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID", "the id of the credentials"),
    Setting("MAUVE_BACKUP_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "their secret"),
    Setting("MAUVE_SMTP_URL", "none", "smtp://USER:PASSWORD@HOST:587 or smtps://…: sends alerts and digests by e-mail"),
    Setting("MAUVE_MAIL_FROM", "the user of MAUVE_SMTP_URL", "the sender's address of those e-mails"),
    Setting("MAUVE_ALERTS", "1", "0 judges no rules and sends nothing, as for a restored copy beside the original"),
    Setting("MAUVE_ALERTS_ALLOW_PRIVATE", "0", "1 lets alerts' webhooks reach private addresses, and plain http"),
    Setting("MAUVE_UPGRADE_BACKUPS", "2", "how many backups from before upgrades are kept; 0 makes none"),
    Setting("MAUVE_DRAIN_SECONDS", "5 on servers, else 0", "seconds from /readyz turning 503 to the stop, up to 120"),
    Setting("MAUVE_HANG_SECONDS", "30", "seconds until a hung process is restarted; 0 is never"),
    Setting("MAUVE_LOAD_HANG_SECONDS", "600", "seconds until a process whose load step hangs is restarted; 0 is never"),
    Setting("MAUVE_METRICS_PORT", "0", "Prometheus: the core's port, worker N at +N; 0 is off"),
    Setting("MAUVE_METRICS_HOST", "127.0.0.1", "the address of that port; Prometheus must be able to reach it"),
    Setting("MAUVE_LOG", "auto", "console, json, or auto: console on a terminal, json otherwise"),
)

SECRETS: Final = (
    "MAUVE_MASTER_KEY",
    "MAUVE_DATABASE_URL",
    "MAUVE_WAREHOUSE_URL",
    "MAUVE_STREAM_URL",
    "MAUVE_BACKUP_SECRET_ACCESS_KEY",
    "MAUVE_SMTP_URL",
)
"""Settings that may come from a file: the variable with `_FILE` added names it."""

_RESEMBLANCE_MIN: Final = 0.85  # Other programs, and Kubernetes, have names of their own that begin like ours.
_MB: Final = 1024 * 1024
PORT_MAX: Final = 65_535
WORKERS_MAX: Final = 64
DRAIN_S_MAX: Final = 120.0
HANG_S_MIN: Final = 5  # A busy event loop can be silent for some seconds.
KEY_ELSEWHERE: Final = (
    "keep a copy of master.key away from this machine, as nothing else opens the backups once it is lost, "
    "then set MAUVE_MASTER_KEY to it, or MAUVE_MASTER_KEY_FILE to its path"
)
_INTERVAL_S: Final = (600, 90 * 86_400)  # least and most
_DIGITS_MAX: Final = 9
_HOST_AND_PORT: Final = re.compile(r"[^\s/?#@\\]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class BackupSettings:
    url: str | None  # s3://BUCKET/PREFIX, or a directory
    every_s: int | None  # None: only by command
    keep: int
    encrypts: bool
    endpoint: str | None
    region: str | None
    access_key_id: str | None  # None: as the AWS tools find it
    secret_access_key: Secret | None


@dataclass(frozen=True, slots=True)
class Settings:
    data: Path
    host: str
    port: int
    ingest_port: int
    workers: int
    public_url: str | None
    public_ingest_url: str | None  # None: the public URL
    proxies: int
    connections_per_address: int  # 0: no limit
    master_key: Secret | None
    database_url: Secret | None  # None: SQLite files in the data directory
    warehouse_url: Secret | None  # None: chDB in the data directory
    stream_url: Secret | None  # None: segment files in the data directory
    stream_monitor_urls: tuple[str, ...]  # empty: port 8222 of each server
    stream_keep_hours: int
    catalog_timeout_s: float
    flush_s: float
    backlog_bytes_max: int
    segment_bytes: int
    publishable_events_per_s: int
    publishable_bytes_per_s: int
    quotas: Quotas
    read_cache_s: int
    read_s_max: float
    raw_retention_days: int
    backup: BackupSettings
    smtp_url: Secret | None  # None: no e-mail is sent
    mail_from: str | None
    alerts: bool  # False: this machine judges no rules and sends nothing
    alerts_allow_private: bool
    upgrade_backups: int  # 0: none is made
    drain_s: float
    hang_s: int  # 0: never
    load_hang_s: int  # 0: never
    role: str
    metrics_port: int
    metrics_host: str
    log: str


def settings_from(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read every setting; raise an error about the first that is invalid."""
    master_key, smtp_url = _secret(environment, "MAUVE_MASTER_KEY"), _secret(environment, "MAUVE_SMTP_URL")
    servers = _servers(environment, master_key)
    data = environment.get("MAUVE_DATA", "mauve-data")
    if not data:
        raise SettingError("MAUVE_DATA is empty: name a directory")
    proxies = _integer(environment, "MAUVE_PROXIES", 0, 0, 10)
    per_address = _integer(environment, "MAUVE_CONNECTIONS_PER_ADDRESS", 1536, 0, 1_000_000)
    return Settings(
        data=Path(data),
        host=environment.get("MAUVE_HOST", "127.0.0.1"),
        port=_port(environment),
        ingest_port=_integer(environment, "MAUVE_INGEST_PORT", 8081, 0, PORT_MAX),
        workers=_integer(environment, "MAUVE_WORKERS", max(1, (os.cpu_count() or 1) // 2), 1, WORKERS_MAX),
        public_url=_public_url(environment, "MAUVE_PUBLIC_URL"),
        public_ingest_url=_public_url(environment, "MAUVE_PUBLIC_INGEST_URL"),
        proxies=proxies,
        # Behind a proxy, all connections come from the proxy.
        connections_per_address=0 if proxies else per_address,
        master_key=master_key,
        database_url=servers["MAUVE_DATABASE_URL"],
        warehouse_url=servers["MAUVE_WAREHOUSE_URL"],
        stream_url=servers["MAUVE_STREAM_URL"],
        stream_monitor_urls=_monitor_urls(environment, "MAUVE_STREAM_MONITOR_URL"),
        stream_keep_hours=_integer(environment, "MAUVE_STREAM_KEEP_HOURS", 48, 0, 720),
        catalog_timeout_s=float(_integer(environment, "MAUVE_CATALOG_TIMEOUT_SECONDS", 4, 1, 60)),
        flush_s=_seconds(environment, "MAUVE_INGEST_FLUSH_SECONDS", 2.0, 0.2, 30.0),
        backlog_bytes_max=_integer(environment, "MAUVE_BACKLOG_MB", 10_240, 256, 10_000_000) * _MB,
        segment_bytes=_integer(environment, "MAUVE_SEGMENT_MB", 32, 3, 1024) * _MB,
        publishable_events_per_s=_integer(environment, "MAUVE_PUBLISHABLE_EVENTS_PER_SECOND", 1000, 1, 1_000_000),
        publishable_bytes_per_s=_integer(environment, "MAUVE_PUBLISHABLE_BYTES_PER_SECOND", 2 * _MB, 1024, 999_999_999),
        quotas=_quotas(environment),
        read_cache_s=_integer(environment, "MAUVE_READ_CACHE_SECONDS", 300, 0, 86_400),
        read_s_max=_seconds(environment, "MAUVE_READ_SECONDS", 10.0, 1.0, 300.0),
        raw_retention_days=_integer(environment, "MAUVE_RAW_RETENTION_DAYS", 0, 0, 36_500),
        backup=_backup(environment, master_key, is_on_servers=any(servers.values())),
        smtp_url=smtp_url,
        mail_from=environment.get("MAUVE_MAIL_FROM") or None,
        alerts=bool(_integer(environment, "MAUVE_ALERTS", 1, 0, 1)),
        alerts_allow_private=bool(_integer(environment, "MAUVE_ALERTS_ALLOW_PRIVATE", 0, 0, 1)),
        upgrade_backups=_integer(environment, "MAUVE_UPGRADE_BACKUPS", 2, 0, 100),
        # Only machines that share every engine have another one to which clients can move.
        drain_s=_seconds(environment, "MAUVE_DRAIN_SECONDS", 5.0 if all(servers.values()) else 0.0, 0.0, DRAIN_S_MAX),
        hang_s=_hang_s(environment, "MAUVE_HANG_SECONDS", 30, 3600),
        load_hang_s=_hang_s(environment, "MAUVE_LOAD_HANG_SECONDS", 600, 86_400),
        role="all",
        metrics_port=_integer(environment, "MAUVE_METRICS_PORT", 0, 0, PORT_MAX - WORKERS_MAX),
        metrics_host=environment.get("MAUVE_METRICS_HOST", "127.0.0.1"),
        log=_log(environment),
    )


def misspelled(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that are not settings, each with the setting that its name resembles."""
    known = {setting.name for setting in SETTINGS} | {f"{name}_FILE" for name in SECRETS} | {"MAUVE_URL", "MAUVE_TOKEN"}
    others = sorted(name for name in environment if name.startswith("MAUVE_") and name not in known)
    return {name: near[0] for name in others if (near := difflib.get_close_matches(name, known, 1, _RESEMBLANCE_MIN))}


def _hang_s(environment: Mapping[str, str], name: str, default: int, most: int) -> int:
    hang_s = _integer(environment, name, default, 0, most)
    if 0 < hang_s < HANG_S_MIN:
        raise SettingError(f"{name} must be at least {HANG_S_MIN}, or 0")
    return hang_s


def service_from(environment: Mapping[str, str] = os.environ) -> tuple[str | None, Secret | None]:
    """Return the address of a service elsewhere, and the control token for it."""
    return _public_url(environment, "MAUVE_URL"), _secret(environment, "MAUVE_TOKEN")


def _log(environment: Mapping[str, str]) -> str:
    log = environment.get("MAUVE_LOG", "auto")
    if log not in {"auto", "console", "json"}:
        raise SettingError("MAUVE_LOG must be console, json or auto")
    return log


def _public_url(environment: Mapping[str, str], name: str) -> str | None:
    """Return an address for links; None if it is empty. Pages are at the root of their host, so it has no path."""
    text = environment.get(name, "")
    if not text:
        return None
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in {"http", "https"} and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        is_address = False
    rest = text.partition("://")[2].removesuffix("/")
    if not is_address or _HOST_AND_PORT.fullmatch(rest) is None:
        raise SettingError(
            f"{name} must be an address like https://metrics.example.com, with http:// or https:// and no path"
        )
    return text


def _quotas(environment: Mapping[str, str]) -> Quotas:
    """Read the limits per organization. Their maxima are what lists and the keyring of each process can hold."""
    default = Quotas()
    return Quotas(
        apps=_integer(environment, "MAUVE_APPS_PER_ORGANIZATION", default.apps, 1, 10_000),
        keys_per_app=_integer(environment, "MAUVE_KEYS_PER_APP", default.keys_per_app, 1, 1_000),
        keys=_integer(environment, "MAUVE_KEYS_PER_ORGANIZATION", default.keys, 1, 100_000),
        tokens=_integer(environment, "MAUVE_TOKENS_PER_ORGANIZATION", default.tokens, 1, 10_000),
        members=_integer(environment, "MAUVE_MEMBERS_PER_ORGANIZATION", default.members, 1, 10_000),
    )


def _backup(environment: Mapping[str, str], master_key: Secret | None, *, is_on_servers: bool) -> BackupSettings:
    url = environment.get("MAUVE_BACKUP_URL") or None
    every_s = _interval(environment, "MAUVE_BACKUP_EVERY")
    if url is not None and is_on_servers:
        raise SettingError("MAUVE_BACKUP_URL is for engines in files: for servers, see 'mauve backup --plan'")
    if every_s is not None and url is None:
        raise SettingError("MAUVE_BACKUP_EVERY needs MAUVE_BACKUP_URL, too: s3://BUCKET/PREFIX, or a directory")
    encrypts = bool(_integer(environment, "MAUVE_BACKUP_ENCRYPT", 0, 0, 1))
    if encrypts and master_key is None:
        raise SettingError(f"MAUVE_BACKUP_ENCRYPT needs MAUVE_MASTER_KEY, too: {KEY_ELSEWHERE}")
    access_key_id = environment.get("MAUVE_BACKUP_ACCESS_KEY_ID") or None
    secret_access_key = _secret(environment, "MAUVE_BACKUP_SECRET_ACCESS_KEY")
    if (access_key_id is None) != (secret_access_key is None):
        raise SettingError("set both MAUVE_BACKUP_ACCESS_KEY_ID and MAUVE_BACKUP_SECRET_ACCESS_KEY, or neither")
    endpoint = environment.get("MAUVE_BACKUP_ENDPOINT") or None
    if endpoint is not None and not _is_server(endpoint, ("http", "https")):
        raise SettingError("MAUVE_BACKUP_ENDPOINT must be written as https://HOST, or https://HOST:PORT")
    return BackupSettings(
        url=url,
        every_s=every_s,
        keep=_integer(environment, "MAUVE_BACKUP_KEEP", 7, 1, 1000),
        encrypts=encrypts,
        endpoint=endpoint,
        region=environment.get("MAUVE_BACKUP_REGION") or environment.get("AWS_REGION") or None,
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
    )


def _interval(environment: Mapping[str, str], name: str) -> int | None:
    """Return a number of seconds from a text such as 24h; None if it is absent."""
    text = environment.get(name)
    if not text:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,3})([mhd])", text, re.ASCII)
    seconds = 0 if match is None else int(match[1]) * {"m": 60, "h": 3600, "d": 86_400}[match[2]]
    if not _INTERVAL_S[0] <= seconds <= _INTERVAL_S[1]:
        raise SettingError(f"{name} must be a time from 10m to 90d, such as 30m, 24h or 7d")
    return seconds


def _port(environment: Mapping[str, str]) -> int:
    own, platforms = environment.get("MAUVE_PORT"), environment.get("PORT")
    if own is not None and own.startswith("tcp://"):
        advice = "set enableServiceLinks: false for the pod, or MAUVE_PORT to a number"
        raise SettingError(f"MAUVE_PORT is an address, which Kubernetes sets for a Service named mauve: {advice}")
    if own is None and not platforms:  # Some platforms set it to nothing.
        return 8080
    return _integer(environment, "PORT" if own is None else "MAUVE_PORT", 8080, 0, PORT_MAX)


def _secret(environment: Mapping[str, str], name: str) -> Secret | None:
    """Return a secret from its variable, or from the file that the same variable with `_FILE` names."""
    path = environment.get(f"{name}_FILE")
    if path is None:
        value = environment.get(name)
        return None if value is None else Secret(value)
    if name in environment:
        raise SettingError(f"{name} and {name}_FILE are both set: keep one of them")
    if not path:
        raise SettingError(f"{name}_FILE is empty: name a file, or do not set it")
    try:
        return Secret(read_secret_file(f"{name}_FILE", path))
    except ValueError as error:
        raise SettingError(str(error)) from None


def _servers(environment: Mapping[str, str], master_key: Secret | None) -> dict[str, Secret | None]:
    """Return the addresses of the servers by the name of their setting; each may be absent."""
    servers = {
        "MAUVE_DATABASE_URL": _database_url(environment, "MAUVE_DATABASE_URL", ("postgresql", "postgres")),
        "MAUVE_WAREHOUSE_URL": warehouse_url_from(environment),
        "MAUVE_STREAM_URL": _stream_url(environment, "MAUVE_STREAM_URL"),
    }
    for name, url in servers.items():
        if url is not None and master_key is None:
            advice = "take it from the file master.key, or create one with 'openssl rand -base64 32'"
            raise SettingError(f"{name} needs MAUVE_MASTER_KEY, too: {advice}")
    return servers


def warehouse_url_from(environment: Mapping[str, str] = os.environ) -> Secret | None:
    return _database_url(environment, "MAUVE_WAREHOUSE_URL", ("clickhouse", "clickhouses"))


def _database_url(environment: Mapping[str, str], name: str, schemes: Sequence[str]) -> Secret | None:
    """Return the address of a database. Errors never contain it: it may hold a password."""
    url = _secret(environment, name)
    if url is not None and not _is_server(url.reveal(), schemes, names_database=True):
        raise SettingError(f"{name} must be written as {schemes[0]}://USER:PASSWORD@HOST:PORT/DATABASE")
    return url


def _stream_url(environment: Mapping[str, str], name: str) -> Secret | None:
    """Return the addresses of NATS servers, separated by commas."""
    url = _secret(environment, name)
    if url is not None and not all(_is_server(each, ("nats", "tls")) for each in url.reveal().split(",")):
        raise SettingError(f"{name} must be written as nats://HOST:4222, or several such addresses with commas")
    return url


def _monitor_urls(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    urls = tuple(url.strip() for url in environment.get(name, "").split(",") if url.strip())
    if not all(_is_server(url, ("http", "https")) for url in urls):
        raise SettingError(f"{name} must be written as http://HOST:8222, or several such addresses with commas")
    return urls


def _is_server(url: str, schemes: Sequence[str], *, names_database: bool = False) -> bool:
    try:
        parts = urlsplit(url.strip())
        names = [name for name in parts.path.split("/") if name]
        return bool(parts.scheme in schemes and parts.hostname and parts.port != 0 and len(names) == names_database)
    except ValueError:
        return False


def _integer(environment: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    if (text := environment.get(name)) is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX or not least <= int(text) <= most:
        raise SettingError(f"{name} must be a whole number from {least} to {most}")
    return int(text)


def _seconds(environment: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    if (text := environment.get(name)) is None:
        return default
    if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", text, re.ASCII) is None or not least <= float(text) <= most:
        raise SettingError(f"{name} must be a number of seconds from {least:g} to {most:g}")
    return float(text)
