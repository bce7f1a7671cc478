"""The protocol between the supervisor and its child processes.

The config is a command-line argument, so it holds no secrets. The child's standard input stays open until the
supervisor exits or requests an immediate stop. Its standard output carries one report, then a line every second: a
heartbeat, or the message that its loader hangs.
"""

import dataclasses
from pathlib import Path
from typing import Final, Literal

import msgspec

from mauve.config import Settings, settings_from

ChildRole = Literal["core", "ingest", "api", "loader"]


class ChildConfig(msgspec.Struct, frozen=True):
    role: ChildRole
    number: int
    data: str
    host: str
    port: int
    ingest_port: int
    is_first: bool = False  # It prepares the installation before any other process starts.
    stacks_fd: int | None = None  # where to write the threads' stacks on request

    @property
    def name(self) -> str:
        return f"{self.role}-{self.number}" if self.role == "ingest" else self.role

    def settings(self) -> Settings:
        return dataclasses.replace(
            settings_from(),
            data=Path(self.data),
            host=self.host,
            port=self.port,
            ingest_port=self.ingest_port,
        )


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    setup_path: str | None = None
    setup_link_printed_by: str | None = None  # another machine
    is_prepared: bool = True  # False: a server is down, and the installation is prepared once it is back


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The child cannot start, and a retry would not help."""

    reason: str
    exit_code: int = 2  # of the service: 2 for a usage error, 1 for an unusable server


Report = Ready | Refused

HEARTBEAT: Final = b".\n"  # The event loop is alive.
LOADER_HANGS: Final = b"!\n"  # The event loop is alive, but a load step hangs.
