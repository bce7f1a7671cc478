"""Wires the name of this machine, under which it shares counts and holds the loader's lease."""

import secrets

from mauve.config import Settings
from mauve.stores.data_directory import write_private_file
from mauve.wiring.paths import machine_path


def machine_of(settings: Settings) -> str:
    """Return this machine's name among all that use the same servers. A lost one is replaced: what it held expires."""
    path = machine_path(settings.data)
    if not path.exists():
        write_private_file(path, secrets.token_hex(8).encode() + b"\n")
    return path.read_text().strip()
