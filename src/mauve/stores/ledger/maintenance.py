"""Erase a person from the ledger without changing money and counts, or delete a whole project."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa

from mauve.core.personal_data import is_of_project, names_person, without_person
from mauve.stores.ledger.schema import dead_letters, metadata, payments, subscription_versions, subscriptions
from mauve.stores.maintenance import ChangedEntries
from mauve.stores.sql.database import Database

_ROWS_AT_ONCE: Final = 1_000
_CHANGES_AT_ONCE: Final = 200  # per transaction, so that writers can run in between
_DELETIONS_AT_ONCE: Final = 500  # likewise
_TABLES_BY_PROJECT: Final = tuple(table for table in metadata.sorted_tables if "project" in table.c)
_NOTHING: Final = b"{}"


class LedgerMaintenance:
    """Safe to use while others record and load.

    - A payment keeps its id, digest, times and money, so a repeat is still a duplicate.
    - A subscription version keeps its id and everything that MRR depends on.
    """

    def __init__(self, database: Database, longest_read_s: float) -> None:
        self._database = database
        self._journal_patience_s = 2 * longest_read_s

    def erase_user(self, project: str, user: str) -> ChangedEntries:
        return ChangedEntries(
            payments=self._erase_payments(project, user),
            subscription_versions=self._erase_versions(project, user),
            dead_letters=self._erase_dead_letters(project, user),
        )

    def delete_project(self, project: str) -> ChangedEntries:
        """Delete everything about a project, in steps. Repeat it after an interruption to delete the rest."""
        deleted = {table.name: self._delete_rows(table, project) for table in _TABLES_BY_PROJECT}
        return ChangedEntries(
            payments=deleted[payments.name],
            subscription_versions=deleted[subscription_versions.name],
            dead_letters=self._delete_dead_letters(project),
        )

    def empty_journal(self) -> bool:
        """Remove copies of changed rows from the journal; return False if a reader prevents it for too long."""
        return self._database.empty_journal(self._journal_patience_s)

    def close(self) -> None:
        self._database.close()

    def _erase_payments(self, project: str, user: str) -> int:
        of_person = sa.select(payments.c.id).where(payments.c.project == project, payments.c.user == user)
        ids = [id_ for (id_,) in self._rows(of_person)]
        erase = (
            sa.update(payments)
            .where(payments.c.project == project, payments.c.id == sa.bindparam("of_id"))
            .values(user=None, payload=_NOTHING)
        )
        self._change(erase, [{"of_id": id_} for id_ in ids])
        return len(ids)

    def _erase_versions(self, project: str, user: str) -> int:
        self._empty(project, user, subscriptions, subscriptions.c.key)
        return self._empty(project, user, subscription_versions, subscription_versions.c.sequence)

    def _empty(self, project: str, user: str, table: sa.Table, key: sa.Column[Any]) -> int:
        """Empty the payload and the customer of each row that names the person."""
        sent = sa.select(key, table.c.payload, table.c.customer).where(table.c.project == project)
        found = [
            {"of_key": of_key}
            for of_key, payload, customer in self._rows(sent)
            if customer == user or names_person(payload, user)
        ]
        of_row = (table.c.project == project) & (key == sa.bindparam("of_key"))
        self._change(sa.update(table).where(of_row).values(payload=_NOTHING, customer=None), found)
        return len(found)

    def _erase_dead_letters(self, project: str, user: str) -> int:
        letters = self._rows(sa.select(dead_letters.c.sequence, dead_letters.c.payload))
        changes = [
            {"of_sequence": sequence, "rest": rest}
            for sequence, payload in letters
            if (rest := without_person(payload, project, user)) is not None
        ]
        of_letter = dead_letters.c.sequence == sa.bindparam("of_sequence")
        self._change(sa.update(dead_letters).where(of_letter).values(payload=sa.bindparam("rest")), changes)
        return len(changes)

    def _delete_rows(self, table: sa.Table, project: str) -> int:
        key = sa.tuple_(*table.primary_key.columns)
        some = sa.select(*table.primary_key.columns).where(table.c.project == project).limit(_DELETIONS_AT_ONCE)
        deleted = 0
        while True:
            with self._database.writing() as tx:
                count = tx.execute(sa.delete(table).where(key.in_(some))).rowcount
            deleted += count
            if count < _DELETIONS_AT_ONCE:
                return deleted

    def _delete_dead_letters(self, project: str) -> int:
        letters = self._rows(sa.select(dead_letters.c.sequence, dead_letters.c.payload))
        found = [{"of_sequence": sequence} for sequence, payload in letters if is_of_project(payload, project)]
        self._change(sa.delete(dead_letters).where(dead_letters.c.sequence == sa.bindparam("of_sequence")), found)
        return len(found)

    def _rows(self, query: sa.Select[Any]) -> Iterator[Any]:
        with (
            self._database.reading() as tx,
            tx.execute(query, execution_options={"yield_per": _ROWS_AT_ONCE}) as rows,
        ):
            yield from rows

    def _change(self, statement: sa.Update | sa.Delete, rows: Sequence[dict[str, Any]]) -> None:
        for start in range(0, len(rows), _CHANGES_AT_ONCE):
            with self._database.writing() as tx:
                tx.execute(statement, rows[start : start + _CHANGES_AT_ONCE])
