"""Wires per-machine state: its name, and whether it owns the installation because it has local engines."""

import platform
import re
import secrets
import socket
from typing import Final

from mauve.config import Settings
from mauve.stores import ForeignDataError
from mauve.stores.catalog.catalog import Installation
from mauve.stores.data_directory import write_private_file
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
