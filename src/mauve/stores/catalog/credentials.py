"""Data-plane keys and control tokens: mint, count, list and revoke them. Only digests and masked forms are stored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import sqlalchemy as sa

from mauve.core.credential import OPERATOR, AppKey, ControlToken, Scope
from mauve.core.user import Role, scopes_of
from mauve.stores.catalog import Minted, NewKey, NewToken, StoredToken, Tally, TallyCheck
from mauve.stores.catalog.published import publish, scopes_from
from mauve.stores.catalog.schema import apps, keys, memberships, organizations, projects, published, tokens
from mauve.stores.sql.database import SqlStore, record_from

_IDS_AT_ONCE: Final = 500  # SQLite limits the number of parameters
_IS_PUBLISHED_KEY: Final = (published.c.kind == "key") & (published.c.id == keys.c.key_id)
_KEYS: Final = sa.select(keys, published.c.committed_at.label("mirrored_at")).outerjoin(published, _IS_PUBLISHED_KEY)


class Keys(SqlStore):
    def mint(self, app_id: str, key: NewKey, check: TallyCheck) -> AppKey | None:
        """Store and publish the key; return None if the app has no project in the key's environment."""
        of_environment = (projects.c.app_id == app_id) & (projects.c.environment == key.environment)
        place = sa.select(projects.c.public_id, apps.c.org_id).join(apps, apps.c.app_id == projects.c.app_id)
        with self._database.writing() as tx:
            found = tx.execute(place.where(of_environment)).one_or_none()
            if found is None:
                return None
            check(tally(tx, found.org_id, key.minted_by, app_id))
            insert_key(tx, app_id, found.public_id, key)
            publish(tx, {keys: keys.c.key_id == key.key_id})
            return _key_from(tx.execute(_KEYS.where(keys.c.key_id == key.key_id)).one())

    def all_of(self, app_id: str) -> list[AppKey]:
        """Return the app's keys, including revoked ones, oldest first."""
        query = _KEYS.where(keys.c.app_id == app_id).order_by(keys.c.created_at, keys.c.key_id)
        with self._database.reading() as tx:
            return [_key_from(row) for row in tx.execute(query)]

    def revoke(self, app_id: str, key_id: str) -> AppKey | None:
        """Revoke permanently, and publish that; a revoked key stays unchanged."""
        is_it = (keys.c.key_id == key_id) & (keys.c.app_id == app_id)
        with self._database.writing() as tx:
            _revoke_one(tx, keys, is_it)
            row = tx.execute(_KEYS.where(is_it)).one_or_none()
        return None if row is None else _key_from(row)

    def note_uses(self, used_at: Mapping[str, int]) -> None:
        """Record when keys were last used, by id, without publishing anything. An earlier use changes nothing."""
        self._execute_each(*_uses_of(keys.c.key_id, used_at))


class Tokens(SqlStore):
    def mint(self, new: NewToken, check: TallyCheck) -> None:
        """Store and publish the token."""
        row = asdict(new.token) | {"scopes": ",".join(sorted(new.token.scopes))}
        with self._database.writing() as tx:
            check(tally(tx, new.token.org_id, new.token.minted_by))
            tx.execute(sa.insert(tokens).values(row | {"lookup_id": new.lookup_id, "digest": new.digest}))
            publish(tx, {tokens: tokens.c.token_id == new.token.token_id})

    def all_of(self, org_id: str) -> list[ControlToken]:
        query = sa.select(tokens).where(tokens.c.org_id == org_id).order_by(tokens.c.created_at, tokens.c.token_id)
        with self._database.reading() as tx:
            return [_token_from(row) for row in tx.execute(query)]

    def find(self, lookup_id: str) -> StoredToken | None:
        with self._database.reading() as tx:
            row = tx.execute(sa.select(tokens).where(tokens.c.lookup_id == lookup_id)).one_or_none()
        return None if row is None else StoredToken(_token_from(row), row.digest)

    def revoke(self, token_id: str) -> ControlToken | None:
        """Revoke permanently, and publish that; a revoked token stays unchanged."""
        is_it = tokens.c.token_id == token_id
        with self._database.writing() as tx:
            _revoke_one(tx, tokens, is_it)
            row = tx.execute(sa.select(tokens).where(is_it)).one_or_none()
        return None if row is None else _token_from(row)

    def note_uses(self, used_at: Mapping[str, int]) -> None:
        """Record when tokens were last used, by lookup id, likewise."""
        self._execute_each(*_uses_of(tokens.c.lookup_id, used_at))


def insert_key(tx: sa.Connection, app_id: str, public_id: str, key: NewKey) -> None:
    """Store a key within the caller's transaction, which publishes it: an app is created with its first key."""
    tx.execute(sa.insert(keys).values(asdict(key) | {"app_id": app_id, "public_id": public_id, "revoked": False}))


def lock_organization(tx: sa.Connection, org_id: str) -> None:
    """Block minting in the organization and changes to its members until the transaction ends."""
    tx.execute(sa.select(organizations.c.org_id).where(organizations.c.org_id == org_id).with_for_update())


def tally(tx: sa.Connection, org_id: str, minted_by: str, app_id: str | None = None) -> Tally:
    lock_organization(tx, org_id)
    of_organization = keys.c.app_id.in_(sa.select(apps.c.app_id).where(apps.c.org_id == org_id))
    working, in_all = _count(tx, keys, of_organization)
    app_working, app_in_all = _count(tx, keys, keys.c.app_id == app_id)
    tokens_working, tokens_in_all = _count(tx, tokens, tokens.c.org_id == org_id)
    return Tally(
        apps=tx.execute(sa.select(sa.func.count()).where(apps.c.org_id == org_id)).scalar_one(),
        keys=working,
        keys_in_all=in_all,
        app_keys=app_working,
        app_keys_in_all=app_in_all,
        tokens=tokens_working,
        tokens_in_all=tokens_in_all,
        minter_scopes=_scopes_now(tx, org_id, minted_by),
    )


def minted_by(tx: sa.Connection, org_id: str, user_id: str) -> Minted:
    """Return the active keys and tokens a person minted, directly or through their control tokens, oldest first."""
    is_theirs = (tokens.c.org_id == org_id) & (tokens.c.minted_by == user_id)
    through_tokens = keys.c.minted_by.in_(sa.select(tokens.c.token_id).where(is_theirs))
    working_tokens = sa.select(tokens).where(is_theirs & tokens.c.revoked.is_(False))
    working_keys = _KEYS.join(apps, apps.c.app_id == keys.c.app_id).where(
        apps.c.org_id == org_id, (keys.c.minted_by == user_id) | through_tokens, keys.c.revoked.is_(False)
    )
    return Minted(
        tokens=tuple(map(_token_from, tx.execute(working_tokens.order_by(tokens.c.created_at, tokens.c.token_id)))),
        keys=tuple(map(_key_from, tx.execute(working_keys.order_by(keys.c.created_at, keys.c.key_id)))),
    )


def revoke(tx: sa.Connection, minted: Minted) -> None:
    """Revoke permanently, and publish that."""
    chunks = [
        *_chunks(keys, keys.c.key_id, [key.key_id for key in minted.keys]),
        *_chunks(tokens, tokens.c.token_id, [token.token_id for token in minted.tokens]),
    ]
    for table, are_they in chunks:
        lock_in_order(tx, table, are_they)
        tx.execute(sa.update(table).where(are_they & table.c.revoked.is_(False)).values(revoked=True))
    for table, are_they in chunks:
        publish(tx, {table: are_they})


def lock_in_order(tx: sa.Connection, table: sa.Table, condition: sa.ColumnElement[bool]) -> None:
    """Lock rows in the order in which uses of them are recorded, so that transactions cannot deadlock."""
    order = [tokens.c.lookup_id] if table is tokens else list(table.primary_key)
    tx.execute(sa.select(*order).where(condition).order_by(*order).with_for_update())


def _revoke_one(tx: sa.Connection, table: sa.Table, is_it: sa.ColumnElement[bool]) -> None:
    if tx.execute(sa.update(table).where(is_it & table.c.revoked.is_(False)).values(revoked=True)).rowcount:
        publish(tx, {table: is_it})


def _uses_of(id_: sa.Column[str], used_at: Mapping[str, int]) -> tuple[sa.Update, list[dict[str, object]]]:
    at: sa.BindParameter[int] = sa.bindparam("at")
    last_used_at = id_.table.c.last_used_at
    is_later = last_used_at.is_(None) | (last_used_at < at)
    update = sa.update(id_.table).where(id_ == sa.bindparam("of_id"), is_later).values(last_used_at=at)
    return update, [{"of_id": each, "at": moment} for each, moment in sorted(used_at.items())]


def _chunks(
    table: sa.Table, column: sa.Column[str], ids: Sequence[str]
) -> Iterator[tuple[sa.Table, sa.ColumnElement[bool]]]:
    return ((table, column.in_(ids[at : at + _IDS_AT_ONCE])) for at in range(0, len(ids), _IDS_AT_ONCE))


def _count(tx: sa.Connection, table: sa.Table, condition: sa.ColumnElement[bool]) -> tuple[int, int]:
    """Return the number of active rows, and of all rows including revoked ones."""
    query = sa.select(table.c.revoked, sa.func.count()).where(condition).group_by(table.c.revoked)
    counts = {bool(revoked): count for revoked, count in tx.execute(query)}
    return counts.get(False, 0), sum(counts.values())


def _scopes_now(tx: sa.Connection, org_id: str, minter: str) -> frozenset[Scope]:
    """Return the minter's current scopes: a request can outlive the right to make it."""
    if minter == OPERATOR:
        return frozenset(Scope)
    is_member = (memberships.c.org_id == org_id) & (memberships.c.user_id == minter)
    role = tx.execute(sa.select(memberships.c.role).where(is_member)).scalar_one_or_none()
    if role is not None:
        return scopes_of(Role(role))
    is_token = (tokens.c.org_id == org_id) & (tokens.c.token_id == minter) & tokens.c.revoked.is_(False)
    scopes = tx.execute(sa.select(tokens.c.scopes).where(is_token)).scalar_one_or_none()
    return frozenset() if scopes is None else scopes_from(scopes)


def _key_from(row: sa.Row[Any]) -> AppKey:
    return record_from(row, AppKey)


def _token_from(row: sa.Row[Any]) -> ControlToken:
    return record_from(row, ControlToken, scopes=scopes_from(row.scopes))
