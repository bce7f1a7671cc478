"""Wires the state of shared limits: accepted counts and presence, in files or in the catalog's database."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from mauve.config import Settings
from mauve.stores.limits.accepted import AcceptedExchange, FileAcceptedCounts
from mauve.stores.limits.presence import Presence, beat_in_files
from mauve.stores.sql.processes import SqlAcceptedCounts, beat_in_database
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
        beat = partial(beat_in_files, accepted_path(settings.data), process)
        with closing(Presence(beat, is_local=True)) as presence:
            yield presence.use
        return
    with closing(open_catalog_database(settings)) as database:
        beat = partial(beat_in_database, database, f"{machine_of(settings)}.{process}")
        with closing(Presence(beat, is_local=False)) as presence:
            yield presence.use
