"""The commands that back up and restore an installation whose engines are all on servers, each with its own tool.

The order makes it consistent. PostgreSQL comes first: its dump predates the copy of the warehouse, which thus holds
every row up to the positions in the dump, and some later ones. The log keeps loaded events for a while; the loader
rereads them from those positions, recognizes stored rows, and adds the rest. The streams come last, if at all: a stream
older than the warehouse would give new events the numbers of stored ones.
"""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Final

DUMP: Final = "postgresql.dump"


@dataclass(frozen=True, slots=True)
class ServerPlaces:
    """The names used in the commands. No passwords."""

    database: str  # host, port, user and name, as a URL
    warehouse: str  # the database on ClickHouse
    on_cluster: str  # empty, or the clause
    streams: tuple[str, ...]
    nats: str  # URLs
    keep_hours: int


def backup_plan(places: ServerPlaces, folder: Path, destination: str) -> str:
    """Return the commands that back up and restore this installation, in order."""
    dump, nats = quote(str(folder / DUMP)), f"nats --server={quote(places.nats)}"
    streams = {name: quote(str(folder / name)) for name in places.streams}
    return "\n".join(
        [
            "Back up while the service runs, in this order:",
            f"  1. mkdir -p {quote(str(folder))}",
            f"  2. pg_dump --format=custom --file={dump} {quote(places.database)}",
            f"  3. after 2, on ClickHouse: BACKUP DATABASE `{places.warehouse}`{places.on_cluster} TO {destination}",
            "  4. after 3, only to be able to replace lost NATS servers:",
            *(f"     {nats} stream backup {name} {file}" for name, file in streams.items()),
            "None of these contains MAUVE_MASTER_KEY: keep it elsewhere.",
            "",
            "Restore while no service runs, into new databases (create them first). Replace the addresses below with",
            "the new ones, including passwords, here and in the settings.",
            f"  1. pg_restore --no-owner --dbname={quote(places.database)} {dump}",
            f"  2. on ClickHouse: RESTORE DATABASE `{places.warehouse}`{places.on_cluster} FROM {destination}",
            f"     (under another name: RESTORE DATABASE `{places.warehouse}` AS `NEW`{places.on_cluster} FROM …)",
            "  3. only for lost streams on NATS (if there is no backup of them, add --new-streams to step 4 instead):",
            *(f"     {nats} stream restore {file}" for file in streams.values()),
            "  4. mauve restore --servers   (reconciles the warehouse with PostgreSQL)",
            "  5. mauve doctor; mauve serve",
            f"NATS keeps loaded events for {places.keep_hours} hours, or until they fill half of its storage (see",
            "'mauve doctor'). Those newer than the dump are loaded again, once; step 4 refuses if some are missing.",
            "Payments and subscriptions newer than the dump are not in it: replay them from your billers.",
            "",
        ]
    )
