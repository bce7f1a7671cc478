"""One connection pool per database and process, shared by all users of the database.

Statement limits are set per transaction, so they need no separate pool; the first user decides how long to wait for a
connection or a lock. A SQLite file has no connection limit, so each user has its own pool.
"""

import threading
from typing import Final

import sqlalchemy as sa

from mauve.stores.sql.dialects import Dialect, Session, Sqlite
from mauve.stores.sql.postgresql import Postgresql

_Key = tuple[str, Session]

_opening: Final = threading.Lock()
_dialects: Final[dict[_Key, Dialect]] = {}
_users: Final[dict[int, int]] = {}  # by dialect


def acquire(url: sa.URL, patience_s: float, session: Session) -> Dialect:
    key = (url.render_as_string(hide_password=False), session)
    with _opening:
        dialect = _dialects.get(key) or open_dialect(url, patience_s, session)
        if dialect.is_server:
            _dialects[key] = dialect
        _users[id(dialect)] = _users.get(id(dialect), 0) + 1
    return dialect


def release(dialect: Dialect) -> None:
    """Close the pool when its last user releases it."""
    with _opening:
        users = _users.pop(id(dialect), 1) - 1
        if users:
            _users[id(dialect)] = users
            return
        for key in [key for key, each in _dialects.items() if each is dialect]:
            del _dialects[key]
    dialect.close()


def open_dialect(url: sa.URL, patience_s: float, session: Session) -> Dialect:
    if url.get_backend_name() == "sqlite":
        return Sqlite(url, patience_s)
    return Postgresql(url, patience_s, session)
