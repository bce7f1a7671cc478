"""Bring the ledger in line with a warehouse that is newer, or with a log that was lost."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

import sqlalchemy as sa

from mauve.stores.ledger import DeadLetter, intent_from
from mauve.stores.ledger.schema import dead_letters, event_outbox_head, imports, load_lease, load_positions
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert


def raise_outbox_head(database: Database, number: int) -> None:
    """Let new records of the ledger's own stream follow this number: the warehouse has rows of those up to it."""
    with database.writing() as tx:
        tx.execute(sa.update(event_outbox_head).where(event_outbox_head.c.number < number).values(number=number))


def unknown_imports(database: Database, stored: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return those of these imports, by project and number, that the ledger does not know."""
    with database.reading() as tx:
        known = {(project, number) for project, number in tx.execute(sa.select(imports.c.project, imports.c.number))}
    return sorted(set(stored) - known)


def raise_import_number(database: Database, number: int) -> None:
    """Let new imports follow this number: the warehouse has rows of those up to it. On PostgreSQL."""
    sequence = sa.func.pg_get_serial_sequence(imports.name, imports.c.number.name)
    with database.writing() as tx:
        tx.execute(sa.select(sa.func.setval(sequence, sa.func.greatest(sa.func.nextval(sequence), number))))


def skip_lost_records(database: Database, last_numbers: Mapping[int, int]) -> None:
    """Mark every record of these streams loaded, up to the given number: the streams are lost.

    The ledger may be older than a stream, and not know it. An unfinished range keeps its other streams.
    """
    with database.writing() as tx:
        name = tx.execute(sa.select(load_lease.c.intent).with_for_update()).scalar_one()
        if name is not None:
            intent = intent_from(name).without(last_numbers)
            tx.execute(sa.update(load_lease).values(intent=intent.name or None))
        for stream, number in sorted(last_numbers.items()):
            first = upsert(tx.dialect.name, load_positions).values(stream=stream, number=number)
            tx.execute(first.on_conflict_do_nothing(index_elements=[load_positions.c.stream]))
            is_before = (load_positions.c.stream == stream) & (load_positions.c.number < number)
            tx.execute(sa.update(load_positions).where(is_before).values(number=number))


def keep_dead_letters(database: Database, letters: Sequence[DeadLetter]) -> None:
    """Keep what was lost outside of a load step, until an operator deletes it."""
    with database.writing() as tx:
        tx.execute(sa.insert(dead_letters), [asdict(letter) for letter in letters])
