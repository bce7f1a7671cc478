"""Count, list by minter and revoke keys and tokens, within the caller's transaction."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa

from mauve.core.app import Environment
from mauve.core.credential import OPERATOR, AppKey, ControlToken, KeyKind, Scope
from mauve.core.user import Role, scopes_of
from mauve.stores.catalog import Minted, Tally
from mauve.stores.catalog.published import publish, scopes_from
from mauve.stores.catalog.schema import apps, keys, memberships, organizations, published, tokens

_IDS_AT_ONCE: Final = 500  # SQLite limits the number of parameters
_IS_PUBLISHED_KEY: Final = (published.c.kind == "key") & (published.c.id == keys.c.key_id)
KEYS: Final = sa.select(keys, published.c.committed_at.label("mirrored_at")).outerjoin(published, _IS_PUBLISHED_KEY)


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
    working_keys = KEYS.join(apps, apps.c.app_id == keys.c.app_id).where(
        apps.c.org_id == org_id, (keys.c.minted_by == user_id) | through_tokens, keys.c.revoked.is_(False)
    )
    return Minted(
        tokens=tuple(map(token_from, tx.execute(working_tokens.order_by(tokens.c.created_at, tokens.c.token_id)))),
        keys=tuple(map(key_from, tx.execute(working_keys.order_by(keys.c.created_at, keys.c.key_id)))),
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
    """Lock rows in the order in which uses of them are noted, so that no two transactions wait for each other."""
    order = [tokens.c.lookup_id] if table is tokens else list(table.primary_key)
    tx.execute(sa.select(*order).where(condition).order_by(*order).with_for_update())


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


def key_from(row: sa.Row[Any]) -> AppKey:
    return AppKey(
        key_id=row.key_id,
        app_id=row.app_id,
        public_id=row.public_id,
        environment=Environment(row.environment),
        kind=KeyKind(row.kind),
        masked=row.masked,
        revoked=row.revoked,
        mirrored_at=row.mirrored_at,
        created_at=row.created_at,
        minted_by=row.minted_by,
        name=row.name,
        last_used_at=row.last_used_at,
    )


def token_from(row: sa.Row[Any]) -> ControlToken:
    return ControlToken(
        token_id=row.token_id,
        org_id=row.org_id,
        name=row.name,
        scopes=scopes_from(row.scopes),
        revoked=row.revoked,
        created_at=row.created_at,
        minted_by=row.minted_by,
        last_used_at=row.last_used_at,
    )
