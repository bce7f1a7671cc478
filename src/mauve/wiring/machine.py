"""Wires what belongs to one machine: its name, and the stores that it keeps in files while others are on servers."""

import platform
import re
import secrets
import socket
from contextlib import closing
from typing import Final

from mauve.config import Settings
from mauve.stores import ForeignDataError
from mauve.stores.catalog import Installation
from mauve.stores.catalog.catalog import sql_catalog
from mauve.stores.data_directory import write_private_file
from mauve.stores.log.files.reader import SegmentLogReader
from mauve.wiring.databases import open_catalog_database, open_load_ledger
from mauve.wiring.paths import log_path, machine_path

RELEASE_EVERY_S: Final = 10.0
_FILES_OF: Final = "files_of"
_SETUP_LINK_OF: Final = "setup_link_of"  # when it expires, the machine, and what people call the machine
_KEPT_ELSEWHERE: Final = (
    "another machine, or another --data directory, keeps events of this installation in files: use that one, "
    "or start it with MAUVE_WAREHOUSE_URL and MAUVE_STREAM_URL set, which moves what waits in its files"
)


def machine_of(settings: Settings) -> str:
    """Return this machine's name among all that use the same servers. A lost one is replaced: its claims expire."""
    path = machine_path(settings.data)
    if not path.exists():
        host = re.sub("[^A-Za-z0-9]", "-", socket.gethostname().partition(".")[0])  # for operators
        name = f"{secrets.token_hex(8)}-{host}"
        write_private_file(path, name.encode() + b"\n")
    return path.read_text().strip()


def claim_setup_link(settings: Settings, installation: Installation, now_ms: int, lifetime_ms: int) -> str | None:
    """Let this machine print a set-up link; return the host name of another that has printed one which still works."""
    if settings.database_url is None:
        return None
    claim = f"{now_ms + lifetime_ms} {machine_of(settings)} {platform.node()}"
    expires_at, machine, host = installation.create(_SETUP_LINK_OF, claim).split(" ", 2)
    if machine != machine_of(settings) and now_ms < int(expires_at):
        return host
    installation.put(_SETUP_LINK_OF, claim)
    return None


def check_files(settings: Settings, installation: Installation) -> None:
    """Raise if another machine keeps stores in files: positions in a shared ledger are those of its log."""
    owner = installation.get(_FILES_OF)
    if settings.database_url is not None and owner and owner != machine_of(settings):
        raise ForeignDataError(_KEPT_ELSEWHERE)


def check_claim(settings: Settings) -> None:
    with closing(open_catalog_database(settings)) as database:
        check_files(settings, sql_catalog(database).installation)


def claim_files(settings: Settings) -> None:
    """Let this machine alone keep stores in files, from its first record on; raise if another one does."""
    with closing(open_catalog_database(settings)) as database:
        installation = sql_catalog(database).installation
        owner = installation.create(_FILES_OF, machine_of(settings))
        if not owner:  # released
            installation.put(_FILES_OF, owner := machine_of(settings))
        if owner != machine_of(settings):
            raise ForeignDataError(_KEPT_ELSEWHERE)


def release_files(settings: Settings) -> bool:
    """Let others in once nothing waits in this machine's files any more; return whether that is done."""
    if settings.database_url is None or _keeps_stores(settings):
        return True
    if _uses_files(settings):
        return False
    with closing(open_catalog_database(settings)) as database:
        installation = sql_catalog(database).installation
        if installation.get(_FILES_OF) == machine_of(settings):
            installation.put(_FILES_OF, "")
    return True


def _keeps_stores(settings: Settings) -> bool:
    return settings.warehouse_url is None or settings.stream_url is None


def _uses_files(settings: Settings) -> bool:
    """Return whether a store is in files, or its last records still are."""
    if _keeps_stores(settings):
        return True
    files = SegmentLogReader(log_path(settings.data))
    if not files.streams():
        return False
    with open_load_ledger(settings) as ledger:
        return files.backlog_bytes(ledger.positions()) > 0
