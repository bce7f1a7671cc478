"""Wires the state of shared limits: accepted counts and presence, in files or in the catalog's database."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from mauve.config import Settings
from mauve.stores.limits.accepted_files import FileAcceptedCounts
from mauve.stores.limits.presence_files import FilePresence
from mauve.stores.sql.processes import SqlAcceptedCounts, SqlPresence
from mauve.stores.usage import AcceptedExchange
from mauve.wiring.databases import open_catalog_database
from mauve.wiring.machine import machine_of
from mauve.wiring.paths import accepted_path


@contextmanager
def open_accepted_exchange(settings: Settings, process: int) -> Iterator[AcceptedExchange]:
    if settings.stream_url is None:
        yield FileAcceptedCounts(accepted_path(settings.data), process)
        return
    with closing(open_catalog_database(settings)) as database:
        yield SqlAcceptedCounts(database, f"{machine_of(settings)}.{process}")


@contextmanager
def open_presence(settings: Settings, process: int) -> Iterator[Callable[[], int]]:
    """Yield a function that records a use of a shared limit and counts the processes of all machines that use it."""
    if settings.stream_url is None:
        with closing(FilePresence(accepted_path(settings.data), process)) as file:
            yield file.use
        return
    with (
        closing(open_catalog_database(settings)) as database,
        closing(SqlPresence(database, f"{machine_of(settings)}.{process}")) as presence,
    ):
        yield presence.use
