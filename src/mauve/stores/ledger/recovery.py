"""Reconcile the ledger with a newer warehouse or a lost log."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

import sqlalchemy as sa

from mauve.stores.ledger import DeadLetter, intent_from
from mauve.stores.ledger.schema import dead_letters, event_outbox_head, imports, load_lease, load_positions
from mauve.stores.sql.database import Database
from mauve.stores.sql.dialects import upsert


def raise_outbox_head(database: Database, number: int) -> None:
    """Continue numbering the ledger's stream after this record: the warehouse has rows up to it."""
    with database.writing() as tx:
        tx.execute(sa.update(event_outbox_head).where(event_outbox_head.c.number < number).values(number=number))


def unknown_imports(database: Database, stored: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the imports, by project and number, that are missing from the ledger."""
    with database.reading() as tx:
        known = {(project, number) for project, number in tx.execute(sa.select(imports.c.project, imports.c.number))}
    return sorted(set(stored) - known)


def raise_import_number(database: Database, number: int) -> None:
    """Continue numbering imports after this one: the warehouse has rows up to it. PostgreSQL only."""
    sequence = sa.func.pg_get_serial_sequence(imports.name, imports.c.number.name)
    with database.writing() as tx:
        tx.execute(sa.select(sa.func.setval(sequence, sa.func.greatest(sa.func.nextval(sequence), number))))


def skip_lost_records(database: Database, last_numbers: Mapping[int, int]) -> None:
    """Mark every record of these lost streams as loaded, up to the given number.

    A stream may be missing from an older ledger. An unfinished range keeps its other streams.
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
    """Record losses outside of a load step, until an operator deletes them."""
    with database.writing() as tx:
        tx.execute(sa.insert(dead_letters), [asdict(letter) for letter in letters])
