"""What each release knows of the formats on the servers. Machines of two releases in a row work side by side.

A change of a format therefore takes two releases. The first *expands*: it adds what is new and keeps what is old. The
next one *contracts*: it drops what the release before no longer uses. `tests/tidy/test_migrations.py` refuses a
migration that breaks the last release of this table. Making a release adds a line.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Release(NamedTuple):
    name: str
    catalog: str  # its newest revision of the tables
    ledger: str
    warehouse: int  # its version of the tables on ClickHouse
    log_formats: frozenset[str]  # of messages on NATS that it reads


RELEASES: Final = (Release("0.1.0", catalog="0001", ledger="0001", warehouse=1, log_formats=frozenset({"1"})),)
"""Oldest first. Migrations after those of the last one belong to the next release."""

UNUSED: Final[Mapping[str, str]] = {}
"""Columns and tables that exist and are no longer used, with the first release that does without them.

For example `{"catalog.keys.masked": "0.2.0"}`. A later release may drop them.
"""
