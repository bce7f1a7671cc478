"""Wires `mauve move`: the SQLite files of a stopped service, and the PostgreSQL server that takes over."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from itertools import product
from typing import Final

import sqlalchemy as sa

from mauve.config import Settings
from mauve.core.clock import SystemClock
from mauve.core.window import Window, today_at
from mauve.maintenance.backup import Progress
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.move import Comparison, Moved, Store, move
from mauve.stores import ForeignDataError
from mauve.stores.data_directory import hold, write_private_file
from mauve.stores.sql.catalog.catalog import sql_catalog
from mauve.stores.sql.catalog.schema import metadata as catalog_metadata
from mauve.stores.sql.catalog.schema import projects
from mauve.stores.sql.copy import copy_tables, count_rows, forget_progress, has_progress
from mauve.stores.sql.database import Database
from mauve.stores.sql.ledger.reader import SqlLedgerReader
from mauve.stores.sql.ledger.schema import metadata as ledger_metadata
from mauve.stores.sql.migrate import CATALOG, LEDGER, current_revision, migrate
from mauve.wiring.bootstrap import check_server, identity_of, prepare
from mauve.wiring.databases import MAINTENANCE_STATEMENT_S, open_catalog_database, open_ledger_database
from mauve.wiring.paths import catalog_path, identity_path, ledger_path

_EARLIEST: Final = date(1970, 1, 1)
_MOVED: Final = "moved"
_JOURNAL_PATIENCE_S: Final = 5.0


def move_to_database(settings: Settings, progress: Progress) -> Moved:
    """Copy catalog and ledger from the data directory to `settings.database_url`, compare, and retire the files."""
    embedded = replace(settings, database_url=None)
    if not catalog_path(settings.data).exists():
        raise MaintenanceRefusedError(f"there is no installation on SQLite in {settings.data}: check --data")
    with hold(settings.data):
        prepare(embedded)  # both sides at the same revision
        with _opened(embedded) as (catalog, ledger), _opened(settings) as (new_catalog, new_ledger):
            check_server(new_catalog)
            _check_target(catalog, new_catalog, new_ledger)
            migrate(new_catalog, CATALOG)
            migrate(new_ledger, LEDGER)
            stores = [
                _store("catalog", catalog, new_catalog, catalog_metadata.sorted_tables),
                _store("ledger", ledger, new_ledger, ledger_metadata.sorted_tables),
            ]
            return move(
                stores,
                lambda: _comparisons(catalog, ledger, new_ledger),
                lambda: _switch(settings, (catalog, ledger), (new_catalog, new_ledger)),
                progress,
            )


@contextmanager
def _opened(settings: Settings) -> Iterator[tuple[Database, Database]]:
    with (
        closing(open_catalog_database(settings, statement_s=MAINTENANCE_STATEMENT_S)) as catalog,
        closing(open_ledger_database(settings, statement_s=MAINTENANCE_STATEMENT_S)) as ledger,
    ):
        yield catalog, ledger


def _check_target(catalog: Database, new_catalog: Database, new_ledger: Database) -> None:
    """Accept an empty database, or one that an interrupted move of the same installation has begun to fill."""
    if current_revision(new_catalog, CATALOG) is None:
        return
    known = identity_of(sql_catalog(new_catalog))
    is_begun = has_progress(new_catalog) or has_progress(new_ledger)
    if known is not None and not (is_begun and known == identity_of(sql_catalog(catalog))):
        raise ForeignDataError("the database at MAUVE_DATABASE_URL already holds an installation: name an empty one")


def _store(name: str, source: Database, target: Database, tables: Sequence[sa.Table]) -> Store:
    return Store(
        name,
        partial(count_rows, source, tables),
        partial(count_rows, target, tables),
        partial(copy_tables, source, target, tables),
    )


def _comparisons(catalog: Database, ledger: Database, new_ledger: Database) -> list[Comparison]:
    """Compare the money metrics of every project over all days, and the numbers of days that are closed."""
    window = Window(_EARLIEST, today_at(SystemClock().now_ms()) + timedelta(days=1))
    with catalog.reading() as tx:
        every_project = list(tx.execute(sa.select(projects.c.public_id).order_by(projects.c.public_id)).scalars())
    before, after = SqlLedgerReader(ledger), SqlLedgerReader(new_ledger)
    return [
        Comparison(
            f"{metric} of {project}", partial(read, before, project, window), partial(read, after, project, window)
        )
        for project, (metric, read) in product(every_project, _READS.items())
    ]


_READS: Final = {
    "revenue": lambda reader, project, window: list(reader.day_totals([project], window, True)),  # noqa: FBT003
    "volume": lambda reader, project, window: list(reader.day_totals([project], window, False)),  # noqa: FBT003
    "mrr": lambda reader, project, _window: reader.current_mrr([project]),
    "mrr_history": lambda reader, project, window: list(reader.mrr_changes_until_now([project], window)),
}


def _switch(settings: Settings, old: tuple[Database, Database], new: tuple[Database, Database]) -> None:
    """Retire the files: until then, the service starts on them. The catalog's decides, so it is the first."""
    identity = identity_of(sql_catalog(new[0])) or ""
    write_private_file(identity_path(settings.data), identity.encode() + b"\n")
    for path, database in zip((catalog_path(settings.data), ledger_path(settings.data)), old, strict=True):
        database.empty_journal(_JOURNAL_PATIENCE_S)
        database.close()
        path.rename(path.with_name(f"{path.name}.{_MOVED}"))
    for database in new:
        forget_progress(database)
