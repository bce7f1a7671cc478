"""The published keys, tokens and settings in memory, as data planes need them on every request.

The copy follows the edge. While the edge cannot be read, a worker continues with its last copy.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from mauve.access.keys import digest_of, is_well_formed
from mauve.access.tokens import PresentedToken, presented_token
from mauve.core.ids import is_id
from mauve.overload.token_bucket import TokenBuckets
from mauve.stores import StoreUnavailableError
from mauve.stores.edge import (
    EdgeReader,
    PublishedKey,
    PublishedOrganization,
    PublishedProject,
    PublishedRecord,
    PublishedSecret,
    PublishedToken,
)

REFRESH_EVERY_S: Final = 0.25
FRESH_S: Final = 0.75  # A revoked key is refused within a second: this, and the time of a request to the edge.
EXTRA_REFRESHES_PER_S: Final = 50
_CACHE_MAX: Final = 10_000

log = structlog.get_logger()


class Keyring:
    """Published keys, tokens, projects, secrets, standing and limits.

    An unknown credential or id triggers one extra refresh before it is refused, so that it works as soon as it is
    published. At most `EXTRA_REFRESHES_PER_S` of these happen; during a flood of unknown ids, a new one waits for
    the next regular refresh. Until the edge has been read once, looking up an unknown one raises
    `StoreUnavailableError`.
    """

    def __init__(self, edge: EdgeReader, ticks: Callable[[], float] = time.monotonic) -> None:
        self._edge = edge
        self._ticks = ticks
        self._extra_refreshes = TokenBuckets(EXTRA_REFRESHES_PER_S)
        self._revision = 0
        self._keys: dict[bytes, PublishedKey | None] = {}  # by digest; None: revoked
        self._tokens: dict[str, PublishedToken] = {}
        self._projects: dict[str, PublishedProject] = {}
        self.organizations: dict[str, PublishedOrganization] = {}
        self.secrets: dict[str, PublishedSecret] = {}  # by project and provider
        self._key_cache: dict[str, PublishedKey] = {}  # live keys by credential, cleared on every change
        self._token_cache: dict[str, PublishedToken] = {}  # likewise
        self._refreshing = threading.Lock()
        self._is_current = False
        self._has_loaded = False

    def key_for(self, credential: str | None) -> PublishedKey | None:
        """Return the live key for a presented credential."""
        if credential is None:
            return None
        cached = self._key_cache.get(credential)
        if cached is not None:
            return cached
        if not is_well_formed(credential):
            return None
        digest = digest_of(credential)
        if digest not in self._keys:
            self._refresh_early()
        return self._live_key(credential, digest)

    def token_for(self, credential: str | None) -> PublishedToken | None:
        """Return the live control token for a presented credential, in the environment that its prefix names.

        Unknown, wrong and revoked tokens take the same steps, so that timing reveals nothing.
        """
        if credential is None:
            return None
        cached = self._token_cache.get(credential)
        if cached is not None:
            return cached
        presented = presented_token(credential)
        if presented is None:
            return None
        token = self._live_token(credential, presented)
        if token is None:
            self._refresh_early()
            token = self._live_token(credential, presented)
        return token

    def project(self, public_id: str) -> PublishedProject | None:
        """Return the project, of any organization and environment: the caller must compare them."""
        if public_id not in self._projects and is_id(public_id, "proj"):
            self._refresh_early()
        return self._projects.get(public_id)

    def secret(self, record_id: str) -> PublishedSecret | None:
        """Return the webhook secret of a project and provider."""
        if record_id not in self.secrets:
            self._refresh_early()
        return self.secrets.get(record_id)

    def newer_secret(self, secret: PublishedSecret) -> PublishedSecret | None:
        """Return the newer version of a secret that did not match, if there is one."""
        self._refresh_early()
        current = self.secrets.get(secret.record_id)
        return current if current is not None and current.version > secret.version else None

    def refresh(self) -> None:
        """Apply everything that was published since the last refresh."""
        with self._refreshing:
            try:
                changes = self._edge.changes_since(self._revision)
            except StoreUnavailableError as error:
                if self._is_current:
                    log.warning("edge_unreadable", reason=str(error), advice="continuing with the copy in memory")
                self._is_current = False
                return
            for record in changes.records:
                self._apply(record)
            if changes.records:
                self._key_cache = {}
                self._token_cache = {}
            self._revision = changes.revision
            self._is_current = self._has_loaded = True

    def close(self) -> None:
        self._edge.close()

    @property
    def is_current(self) -> bool:
        """Return whether the last refresh succeeded."""
        return self._is_current

    @property
    def is_fresh(self) -> bool:
        """Return whether everything that was published until a moment ago is known. Ask before a look-up."""
        staleness_s = self._edge.staleness_s(self._revision)
        if staleness_s == math.inf:  # The edge has more.
            self._refresh_early()
            staleness_s = self._edge.staleness_s(self._revision)
        return self._is_current and staleness_s <= FRESH_S

    def _refresh_early(self) -> None:
        if self._extra_refreshes.seconds_to_wait("edge", int(self._ticks() * 1000)) == 0:
            self.refresh()
        if not self._has_loaded:
            raise StoreUnavailableError("the keys have not been read since the start")

    def _live_key(self, credential: str, digest: bytes) -> PublishedKey | None:
        # Take the cache before the lookup: after a revocation, a refresh in another thread replaces it, and the stale
        # key is then added to the discarded one.
        cache = self._key_cache
        key = self._keys.get(digest)
        if key is None:
            return None
        if len(cache) < _CACHE_MAX:
            cache[credential] = key
        return key

    def _live_token(self, credential: str, presented: PresentedToken) -> PublishedToken | None:
        cache = self._token_cache  # before the lookup, as above
        token = self._tokens.get(presented.lookup_id)
        matches = presented.matches(token.digest if token is not None else None)
        if token is None or not matches or token.revoked or token.environment is not presented.environment:
            return None
        if len(cache) < _CACHE_MAX:
            cache[credential] = token
        return token

    def _apply(self, record: PublishedRecord) -> None:
        match record:
            case PublishedKey():
                self._keys[record.digest] = None if record.revoked else record
            case PublishedToken():
                self._tokens[record.lookup_id] = record
            case PublishedProject(archived=True):
                self._projects.pop(record.public_id, None)
            case PublishedProject():
                self._projects[record.public_id] = record
            case PublishedOrganization():
                self.organizations[record.org_id] = record
            case PublishedSecret(archived=True):
                self.secrets.pop(record.record_id, None)
            case PublishedSecret():
                self.secrets[record.record_id] = record
