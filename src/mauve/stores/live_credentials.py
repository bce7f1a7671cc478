"""Which credentials are live in the catalog itself, for processes whose copy of the edge may be old."""

from collections.abc import Collection
from typing import Protocol


class LiveCredentials(Protocol):
    """Asks the catalog.

    - A revocation that was answered before the question is always seen.
    - Raises `StoreUnavailableError` if the catalog cannot be asked.
    """

    def live_keys(self, key_ids: Collection[str]) -> frozenset[str]:
        """Return those of the keys that are neither revoked nor deleted nor keys of an archived app."""
        ...

    def is_live_token(self, lookup_id: str) -> bool: ...

    def is_live_secret(self, public_id: str, provider: str, version: int) -> bool:
        """Return whether this version of a project's webhook secret is the current one, and its app not archived."""
        ...
