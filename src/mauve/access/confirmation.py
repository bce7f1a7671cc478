"""Ask the catalog whether a credential is still live, where the copy of the edge in memory may be old.

A process that is cut off from the edge's servers, but not from the catalog's, would go on accepting a revoked key.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from mauve.access.read_limits import Reader
from mauve.core.problems import unauthorized
from mauve.stores import StoreUnavailableError
from mauve.stores.edge import PublishedKey, PublishedSecret
from mauve.stores.live_credentials import LiveCredentials

WAIT_S_MAX: Final = 8.0

ConfirmKey = Callable[[PublishedKey], Awaitable[None]]
"""Raises unless the key is live in the catalog."""

ConfirmSecret = Callable[[PublishedSecret], Awaitable[None]]
"""Raises unless the webhook secret is the current one in the catalog."""

ConfirmReader = Callable[[Reader], None]
"""Raises unless the credential is live in the catalog. Call it in a thread."""


async def trust_keyring(_key: PublishedKey) -> None:
    """Confirm every key: the edge is a file, and the keyring knows what was published."""


async def trust_secret(_secret: PublishedSecret) -> None:
    """Confirm every webhook secret, likewise."""


def trust_reader(_reader: Reader) -> None:
    """Confirm every credential, likewise."""


def confirm_reader(live: LiveCredentials, reader: Reader) -> None:
    if isinstance(reader, PublishedKey):
        is_live = bool(live.live_keys([reader.key_id]))
    else:
        is_live = live.is_live_token(reader.lookup_id)
    if not is_live:
        raise unauthorized()


class KeyConfirmation:
    """Confirms keys for coroutines of one event loop, in its own thread.

    One look-up at a time: keys that arrive during one share the next, which begins after they have arrived.
    """

    def __init__(self, live: LiveCredentials, wait_s_max: float = WAIT_S_MAX) -> None:
        self._live = live
        self._wait_s_max = wait_s_max
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="confirm-keys")
        self._turn = asyncio.Lock()
        self._arrived: set[str] = set()
        self._next: asyncio.Task[frozenset[str]] | None = None  # the look-up of those that have arrived

    async def confirm(self, key: PublishedKey) -> None:
        """Raise `Problem` if the key is not live, `StoreUnavailableError` if the catalog does not say so in time."""
        self._arrived.add(key.key_id)
        if self._next is None:
            self._next = asyncio.create_task(self._look_up())
            self._next.add_done_callback(_retrieve)
        look_up = self._next
        done, _ = await asyncio.wait({look_up}, timeout=self._wait_s_max)
        if not done:
            raise StoreUnavailableError("the catalog did not answer in time")
        if error := look_up.exception():  # Each caller gets its own: one raised many times would accumulate tracebacks.
            raise StoreUnavailableError(str(error)) from error
        if key.key_id not in look_up.result():
            raise unauthorized()

    async def confirm_secret(self, secret: PublishedSecret) -> None:
        """Raise `Problem` if the secret was replaced, `StoreUnavailableError` if the catalog does not say in time."""
        asked = (secret.public_id, secret.provider, secret.version)
        look_up = asyncio.get_running_loop().run_in_executor(self._thread, self._live.is_live_secret, *asked)
        try:
            is_live = await asyncio.wait_for(look_up, self._wait_s_max)
        except TimeoutError:
            raise StoreUnavailableError("the catalog did not answer in time") from None
        if not is_live:
            raise unauthorized()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    async def _look_up(self) -> frozenset[str]:
        async with self._turn:
            arrived, self._arrived, self._next = self._arrived, set(), None
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._live.live_keys, arrived)


def _retrieve(look_up: asyncio.Task[frozenset[str]]) -> None:
    """Mark the error as retrieved, even if every caller is gone."""
    if not look_up.cancelled():
        look_up.exception()
