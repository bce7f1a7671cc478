"""Control tokens. Only the digest of the secret part is stored."""

from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa

from mauve.core.credential import ControlToken
from mauve.stores.catalog import NewToken, StoredToken, TallyCheck
from mauve.stores.catalog.minting import tally, token_from
from mauve.stores.catalog.published import publish
from mauve.stores.catalog.schema import tokens
from mauve.stores.sql.database import Database

_NOTE_USE: Final = (
    sa.update(tokens).where(tokens.c.lookup_id == sa.bindparam("of_lookup_id")).values(last_used_at=sa.bindparam("at"))
)


class Tokens:
    def __init__(self, database: Database) -> None:
        self._database = database

    def mint(self, new: NewToken, check: TallyCheck) -> None:
        """Store and publish the token."""
        row = {
            "token_id": new.token.token_id,
            "org_id": new.token.org_id,
            "name": new.token.name,
            "lookup_id": new.lookup_id,
            "digest": new.digest,
            "scopes": ",".join(sorted(new.token.scopes)),
            "revoked": new.token.revoked,
            "created_at": new.token.created_at,
            "minted_by": new.token.minted_by,
        }
        with self._database.writing() as tx:
            check(tally(tx, new.token.org_id, new.token.minted_by))
            tx.execute(sa.insert(tokens).values(row))
            publish(tx, {tokens: tokens.c.token_id == new.token.token_id})

    def all_of(self, org_id: str) -> list[ControlToken]:
        query = sa.select(tokens).where(tokens.c.org_id == org_id).order_by(tokens.c.created_at, tokens.c.token_id)
        with self._database.reading() as tx:
            return [token_from(row) for row in tx.execute(query)]

    def find(self, lookup_id: str) -> StoredToken | None:
        with self._database.reading() as tx:
            row = tx.execute(sa.select(tokens).where(tokens.c.lookup_id == lookup_id)).one_or_none()
        return None if row is None else StoredToken(token_from(row), row.digest)

    def revoke(self, token_id: str) -> ControlToken | None:
        """Revoke permanently, and publish that; a revoked token stays unchanged."""
        is_it = tokens.c.token_id == token_id
        with self._database.writing() as tx:
            if tx.execute(sa.update(tokens).where(is_it & tokens.c.revoked.is_(False)).values(revoked=True)).rowcount:
                publish(tx, {tokens: is_it})
            row = tx.execute(sa.select(tokens).where(is_it)).one_or_none()
        return None if row is None else token_from(row)

    def note_uses(self, used_at: Mapping[str, int]) -> None:
        """Record when tokens were last used, by lookup id, without publishing anything."""
        rows = [{"of_lookup_id": lookup_id, "at": at} for lookup_id, at in sorted(used_at.items())]
        if rows:
            with self._database.writing() as tx:
                tx.execute(_NOTE_USE, rows)
