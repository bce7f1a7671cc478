"""Find out what a migration breaks for processes of an earlier release, by running it and comparing the tables."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import NamedTuple

import sqlalchemy as sa

from mauve.stores.sql.database import Database
from mauve.stores.sql.migrate import Chain, run_migrations, scripts_of
from support.releases import RELEASES, UNUSED, Release

_CHANGE = re.compile(
    r'\s*(UPDATE|DELETE FROM|INSERT INTO|TRUNCATE(?: TABLE)?)\s+"?(\w+)"?(.*)', re.DOTALL | re.IGNORECASE
)
_INDEX = re.compile(
    r'\s*CREATE\s+(?:UNIQUE\s+)?INDEX\b.*?\sON\s+(?:ONLY\s+)?(?:\w+\.)?"?(\w+)', re.DOTALL | re.IGNORECASE
)
_ASSIGNED = re.compile(r'(?:\bSET|,)\s*"?(\w+)"?\s*=', re.IGNORECASE)


class Column(NamedTuple):
    type: str
    nullable: bool
    has_default: bool


class Table(NamedTuple):
    columns: dict[str, Column]
    rules: frozenset[str]  # that rows have to meet, and that upserts name


Tables = dict[str, Table]


def broken_by(database: Database, chain: Chain) -> list[str]:
    """Migrate an empty database, and say what the migrations since the last release break for those they name."""
    problems = _wrong_marks(chain)
    compatible_from = _marks(chain)[-1][1]
    released = sorted({getattr(release, chain.name) for release in RELEASES})
    snapshots: dict[str, Tables] = {}
    for revision in released:
        _upgrade(database, chain, revision)
        snapshots[revision] = _tables(database, chain)
    changes = _upgrade(database, chain, "head")
    after = _tables(database, chain)
    for revision, before in snapshots.items():
        if revision >= min(compatible_from or revision, released[-1]):
            spared = _unused_since(chain, revision)
            problems += [problem for problem in _breaks(before, after) if problem.split(":")[0] not in spared]
    last = snapshots[released[-1]]
    return problems + _changed_rows(last, changes) + _indexed(last, changes)


def planted(chain: Chain, folder: Path, body: str, compatible_from: str | None = "", revision: str = "9001") -> Chain:
    """Return a copy of a chain with one more migration, by default one that claims to suit the last release."""
    copy = copytree(chain.folder, folder / chain.name, ignore=ignore_patterns("__pycache__"))
    last = _marks(chain)[-1][0]
    stated = getattr(RELEASES[-1], chain.name) if compatible_from == "" else compatible_from
    mark = "" if stated is None else f'compatible_from = "{stated}"\n'
    (copy / "versions" / f"{revision}_planted.py").write_text(
        f'import sqlalchemy as sa\nfrom alembic import op\nrevision = "{revision}"\ndown_revision = "{last}"\n{mark}'
        f"def upgrade():\n    {body}\n"
    )
    return Chain(chain.name, copy, chain.version_table)


def _upgrade(database: Database, chain: Chain, revision: str) -> list[str]:
    """Migrate, and return the statements that change rows or create indexes.

    The tables are empty, so loops over rows send none.
    """
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if _CHANGE.match(statement) or _INDEX.match(statement):
            statements.append(statement)

    with database.migrating() as connection:
        sa.event.listen(connection, "before_cursor_execute", note)
        run_migrations(connection, chain, revision)
    return statements


def _marks(chain: Chain) -> list[tuple[str, str | None]]:
    """Return each revision with the oldest one that it suits, as it states, oldest first."""
    scripts = scripts_of(chain).walk_revisions()
    return sorted((each.revision, getattr(each.module, "compatible_from", None)) for each in scripts)


def _wrong_marks(chain: Chain) -> list[str]:
    released = getattr(RELEASES[-1], chain.name)
    problems, oldest = [], ""
    for revision, compatible_from in _marks(chain):
        if revision <= released:
            continue
        if compatible_from is None:
            problems.append(f"{revision}: state compatible_from, the oldest revision that its tables suit")
        elif compatible_from > released:
            problems.append(f"{revision}: it excludes the last release: do it in two releases")
        elif compatible_from < oldest:
            problems.append(f"{revision}: what an earlier migration broke is not mended")
        oldest = max(oldest, compatible_from or "")
    return problems


def _tables(database: Database, chain: Chain) -> Tables:
    with database.reading() as connection:
        inspector = sa.inspect(connection)
        names = set(inspector.get_table_names()) - {chain.version_table}
        return {name: _table(inspector, name) for name in names}


def _table(inspector: sa.Inspector, name: str) -> Table:
    columns = {
        column["name"]: Column(
            str(column["type"]), column["nullable"], column["default"] is not None or bool(column.get("identity"))
        )
        for column in inspector.get_columns(name)
    }
    unique: list[Sequence[str | None]] = [
        *(each["column_names"] for each in inspector.get_indexes(name) if each["unique"]),
        *(each["column_names"] for each in inspector.get_unique_constraints(name)),
    ]
    rules = {f"the unique columns {_listed(each)}" for each in unique}
    rules.add(f"the primary key {_listed(inspector.get_pk_constraint(name)['constrained_columns'])}")
    rules |= {f"the check {each['sqltext']}" for each in inspector.get_check_constraints(name)}
    for key in inspector.get_foreign_keys(name):
        rules.add(f"the reference of {_listed(key['constrained_columns'])} to {key['referred_table']}")
    return Table(columns, frozenset(rules))


def _listed(names: Sequence[str | None]) -> str:
    return ", ".join(map(str, names))


def _breaks(before: Tables, after: Tables) -> Iterator[str]:
    """Yield what code that was written for the tables before can no longer do. A problem begins with a name."""
    for name, old in before.items():
        new = after.get(name)
        if new is None:
            yield f"{name}: it is gone or has another name"
            continue
        for column, was in old.columns.items():
            yield from _column_breaks(f"{name}.{column}", was, new.columns.get(column))
        for column in new.columns.keys() - old.columns.keys():
            if not new.columns[column].nullable and not new.columns[column].has_default:
                yield f"{name}.{column}: rows without it are refused: make it nullable or give it a server default"
        for rule in sorted(new.rules - old.rules):
            yield f"{name}: {rule} is new: rows that were allowed before are refused"
        for rule in sorted(old.rules - new.rules):
            yield f"{name}: {rule} is gone, and inserts rely on it"


def _column_breaks(name: str, was: Column, now: Column | None) -> Iterator[str]:
    if now is None:
        yield f"{name}: it is gone or has another name"
        return
    if now.type != was.type:
        yield f"{name}: its type changes from {was.type} to {now.type}"
    if was.nullable and not now.nullable:
        yield f"{name}: it may no longer be null"
    if was.has_default and not now.has_default and not now.nullable:
        yield f"{name}: it has lost its default"


def _unused_since(chain: Chain, revision: str) -> set[str]:
    """Return the names that the release of this revision does without."""
    heads: Mapping[str, Release] = {release.name: release for release in RELEASES}
    return {
        name.removeprefix(f"{chain.name}.")
        for name, since in UNUSED.items()
        if name.startswith(f"{chain.name}.") and since in heads and getattr(heads[since], chain.name) <= revision
    }


def _changed_rows(before: Tables, statements: Sequence[str]) -> list[str]:
    problems = []
    for verb, table, rest in (match.groups() for each in statements if (match := _CHANGE.match(each))):
        if table not in before:
            continue
        assigned = set(_ASSIGNED.findall(rest.split("WHERE")[0])) if verb.upper() == "UPDATE" else set()
        if not assigned or assigned & before[table].columns.keys():
            problems.append(f"{table}: its rows are changed, and the last release goes on reading and writing them")
        else:
            problems.append(f"{table}: its rows are changed while it is locked: fill them from the code")
    return problems


def _indexed(before: Tables, statements: Sequence[str]) -> list[str]:
    tables = [match[1] for each in statements if (match := _INDEX.match(each))]
    return [f"{table}: an index is built while it is locked for writing" for table in tables if table in before]


HARMLESS = {
    "a new table": 'op.create_table("notes", sa.Column("id", sa.Text, primary_key=True))',
    "a column that may be null": 'op.add_column("keys", sa.Column("note", sa.Text))',
    "a column with a default": 'op.add_column("keys", sa.Column("n", sa.Integer, nullable=False, server_default="0"))',
    "an index of a new table": 'op.create_table("notes", sa.Column("id", sa.Text)); '
    'op.create_index("ix_planted", "notes", ["id"])',
    "a new table is filled": 'op.create_table("notes", sa.Column("id", sa.Text)); '
    'op.execute("INSERT INTO notes SELECT name FROM keys")',
}
BREAKING = {
    "a table is dropped": ('op.drop_table("buckets")', "buckets: it is gone"),
    "a table is renamed": ('op.rename_table("buckets", "pails")', "buckets: it is gone or has another name"),
    "a column is dropped": ('op.execute("ALTER TABLE keys DROP COLUMN name")', "keys.name: it is gone"),
    "a column is renamed": ('op.execute("ALTER TABLE keys RENAME COLUMN name TO title")', "keys.name: it is gone"),
    "an index becomes unique": ('op.create_index("ix_planted", "keys", ["name"], unique=True)', "unique columns name"),
    "rows are rewritten": ("op.execute(\"UPDATE keys SET name = 'x'\")", "keys: its rows are changed"),
    "rows are deleted": ('op.execute("DELETE FROM keys")', "keys: its rows are changed"),
    "an index": ('op.create_index("ix_planted", "keys", ["created_at"])', "keys: an index is built"),
    "an index in SQL": ('op.execute("CREATE INDEX ix_planted ON keys (created_at)")', "keys: an index is built"),
    "a new column is filled": (
        'op.add_column("keys", sa.Column("note", sa.Text)); op.execute("UPDATE keys SET note = name")',
        "keys: its rows are changed while it is locked",
    ),
}
BREAKING_ON_POSTGRESQL = {
    "a column without a default": ('op.add_column("keys", sa.Column("n", sa.Integer, nullable=False))', "keys.n: rows"),
    "another type": ('op.alter_column("keys", "name", type_=sa.String(9))', "keys.name: its type changes"),
    "no longer null": ('op.alter_column("keys", "name", nullable=False)', "keys.name: it may no longer be null"),
    "a check": ('op.create_check_constraint("few", "buckets", "tokens < 9")', "buckets: the check"),
    "a reference": ('op.create_foreign_key("f", "reads", "organizations", ["org_id"], ["org_id"])', "reference"),
    "another primary key": (
        'op.execute("ALTER TABLE buckets DROP CONSTRAINT buckets_pkey")',
        "primary key name is",
    ),
}
