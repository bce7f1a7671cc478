"""The published keys in memory: what a data plane asks on every request.

The copy follows the edge. When the edge cannot be read, the copy stays as it is: a worker goes on with what it
knows.
"""

import threading
from typing import Final

import structlog

from mauve.access.keys import digest_of, is_well_formed
from mauve.stores.edge import (
    EdgeReader,
    PublishedKey,
    PublishedOrganization,
    PublishedRecord,
    PublishedSecret,
    PublishedUsage,
)
from mauve.stores.unavailable import StoreUnavailableError

REFRESH_EVERY_S: Final = 0.25
_KNOWN_MAX: Final = 10_000

log = structlog.get_logger()


class Keyring:
    def __init__(self, edge: EdgeReader) -> None:
        self._edge = edge
        self._revision = 0
        self._keys: dict[bytes, PublishedKey] = {}
        self.organizations: dict[str, PublishedOrganization] = {}
        self.secrets: dict[str, PublishedSecret] = {}  # by project and provider
        self.usage: dict[str, PublishedUsage] = {}
        self._known: dict[str, PublishedKey] = {}  # live keys by credential, until anything changes
        self._refreshing = threading.Lock()
        self._is_current = False

    def key_for(self, credential: str | None) -> PublishedKey | None:
        """Return the live key behind a presented credential.

        An unknown one asks the edge once more before it is refused, so that a key works from the moment it is
        published.
        """
        if credential is None:
            return None
        known = self._known.get(credential)
        if known is not None:
            return known
        if not is_well_formed(credential):
            return None
        digest = digest_of(credential)
        key = self._keys.get(digest)
        if key is None:
            self.refresh()
            key = self._keys.get(digest)
        if key is None or key.revoked:
            return None
        if len(self._known) < _KNOWN_MAX:
            self._known[credential] = key
        return key

    def refresh(self) -> None:
        """Take over what was published since the last look."""
        with self._refreshing:
            try:
                changes = self._edge.changes_since(self._revision)
            except StoreUnavailableError as error:
                if self._is_current:
                    log.warning("edge_unreadable", reason=str(error), advice="going on with the copy in memory")
                self._is_current = False
                return
            for record in changes.records:
                self._take(record)
            if changes.records:
                self._known = {}
            self._revision = changes.revision
            self._is_current = True

    def close(self) -> None:
        self._edge.close()

    @property
    def is_current(self) -> bool:
        """Tell whether the last look at the edge succeeded."""
        return self._is_current

    def _take(self, record: PublishedRecord) -> None:
        match record:
            case PublishedKey():
                self._keys[record.digest] = record
            case PublishedOrganization():
                self.organizations[record.org_id] = record
            case PublishedSecret():
                self.secrets[record.record_id] = record
            case PublishedUsage():
                self.usage[record.org_id] = record
