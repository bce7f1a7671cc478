"""What was published, in memory: what a data plane asks on every request.

The copy follows the edge. When the edge cannot be read, the copy stays as it is: a worker goes on with what it
knows.
"""

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
EXTRA_LOOKS_PER_S: Final = 50
_KNOWN_MAX: Final = 10_000

log = structlog.get_logger()


class Keyring:
    """Published keys, tokens, projects, secrets, standing and limits.

    Whatever is unknown asks the edge once more before it is refused, so that it works from the moment it is
    published. A flood of what does not exist gets no more than `EXTRA_LOOKS_PER_S` of these looks; something new
    then waits for the next regular refresh.
    """

    def __init__(self, edge: EdgeReader, ticks: Callable[[], float] = time.monotonic) -> None:
        self._edge = edge
        self._ticks = ticks
        self._extra_looks = TokenBuckets(EXTRA_LOOKS_PER_S)
        self._revision = 0
        self._keys: dict[bytes, PublishedKey | None] = {}  # by digest; None: revoked
        self._tokens: dict[str, PublishedToken] = {}
        self._projects: dict[str, PublishedProject] = {}
        self.organizations: dict[str, PublishedOrganization] = {}
        self.secrets: dict[str, PublishedSecret] = {}  # by project and provider
        self._known: dict[str, PublishedKey] = {}  # live keys by credential, until anything changes
        self._known_tokens: dict[str, PublishedToken] = {}  # likewise
        self._refreshing = threading.Lock()
        self._is_current = False

    def key_for(self, credential: str | None) -> PublishedKey | None:
        """Return the live key behind a presented credential."""
        if credential is None:
            return None
        known = self._known.get(credential)
        if known is not None:
            return known
        if not is_well_formed(credential):
            return None
        digest = digest_of(credential)
        if digest not in self._keys:
            self._look_again()
        return self._live_key(credential, digest)

    def token_for(self, credential: str | None) -> PublishedToken | None:
        """Return the live control token behind a presented credential, of the plane that its prefix names.

        Unknown, wrong and revoked ones all run the same steps, so that the time taken tells nothing.
        """
        if credential is None:
            return None
        known = self._known_tokens.get(credential)
        if known is not None:
            return known
        presented = presented_token(credential)
        if presented is None:
            return None
        token = self._live_token(credential, presented)
        if token is None:
            self._look_again()
            token = self._live_token(credential, presented)
        return token

    def project(self, public_id: str) -> PublishedProject | None:
        """Return the project of whichever organization and plane: it is for the caller to compare them."""
        if public_id not in self._projects and is_id(public_id, "proj"):
            self._look_again()
        return self._projects.get(public_id)

    def secret(self, record_id: str) -> PublishedSecret | None:
        """Return the webhook secret of a project and provider."""
        if record_id not in self.secrets:
            self._look_again()
        return self.secrets.get(record_id)

    def newer_secret(self, secret: PublishedSecret) -> PublishedSecret | None:
        """Return what has replaced a secret that did not fit."""
        self._look_again()
        current = self.secrets[secret.record_id]
        return current if current.version > secret.version else None

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
                self._known_tokens = {}
            self._revision = changes.revision
            self._is_current = True

    def close(self) -> None:
        self._edge.close()

    @property
    def is_current(self) -> bool:
        """Tell whether the last look at the edge succeeded."""
        return self._is_current

    def _look_again(self) -> None:
        if self._extra_looks.seconds_to_wait("edge", int(self._ticks() * 1000)) == 0:
            self.refresh()

    def _live_key(self, credential: str, digest: bytes) -> PublishedKey | None:
        # Taken before the look-up: a refresh in another thread puts a new one in its place after a revocation, and
        # what is then noted here is noted in vain.
        known = self._known
        key = self._keys.get(digest)
        if key is None:
            return None
        if len(known) < _KNOWN_MAX:
            known[credential] = key
        return key

    def _live_token(self, credential: str, presented: PresentedToken) -> PublishedToken | None:
        known = self._known_tokens  # before the look-up, as above
        token = self._tokens.get(presented.lookup_id)
        matches = presented.matches(token.digest if token is not None else None)
        if token is None or not matches or token.revoked or token.environment is not presented.environment:
            return None
        if len(known) < _KNOWN_MAX:
            known[credential] = token
        return token

    def _take(self, record: PublishedRecord) -> None:
        match record:
            case PublishedKey():
                self._keys[record.digest] = None if record.revoked else record
            case PublishedToken():
                self._tokens[record.lookup_id] = record
            case PublishedProject():
                self._projects[record.public_id] = record
            case PublishedOrganization():
                self.organizations[record.org_id] = record
            case PublishedSecret():
                self.secrets[record.record_id] = record
