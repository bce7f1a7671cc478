"""How often passwords may be tried."""

import threading
from collections.abc import Callable
from typing import Final, Protocol

from mauve.overload.fair_share import origin_of
from mauve.overload.token_bucket import TokenBuckets

PAIR_BURST: Final = 10
ADDRESS_BURST: Final = 30
ACCOUNT_BURST: Final = 1_000
_PAIR_REFILL_S: Final = 60
_ADDRESS_REFILL_S: Final = 10
_ACCOUNT_REFILL_S: Final = 6


class Buckets(Protocol):
    def seconds_to_wait(self, key: str, now_ms: int, /) -> int:
        """Take one token and return 0, or return the whole seconds to wait if the bucket is empty."""
        ...


NewBuckets = Callable[[str, float, float], Buckets]  # kind, tokens per second, burst


def in_memory(_kind: str, per_second: float, burst: float) -> Buckets:
    return TokenBuckets(per_second, burst)


class PasswordAttempts:
    """An attempt takes a token from three buckets: the address, the account from this address, and the account.

    An address runs out of attempts at an account long before the account does, so one client cannot lock an owner
    out. The account's own bucket limits guessing from many addresses: 1,000 attempts, then ten a minute.
    An account that does not exist has buckets like any other.
    """

    def __init__(self, new_buckets: NewBuckets = in_memory) -> None:
        self._pairs = new_buckets("pair", 1 / _PAIR_REFILL_S, PAIR_BURST)
        self._addresses = new_buckets("address", 1 / _ADDRESS_REFILL_S, ADDRESS_BURST)
        self._accounts = new_buckets("account", 1 / _ACCOUNT_REFILL_S, ACCOUNT_BURST)
        self._taking = threading.Lock()

    def seconds_to_wait(self, email: str, address: str, now_ms: int) -> int:
        """Take one attempt and return 0, or return the seconds to wait if there is none left."""
        network = origin_of(address)
        with self._taking:
            return (
                self._addresses.seconds_to_wait(network, now_ms)
                or self._pairs.seconds_to_wait(f"{network} {email}", now_ms)
                or self._accounts.seconds_to_wait(email, now_ms)
            )


def client_address(peer: str, forwarded_for: str | None, proxies: int) -> str:
    """Return the client's address, seen through our own reverse proxies.

    Each proxy appends the address it received the request from. Trust only what our own proxies appended.
    """
    if proxies == 0 or forwarded_for is None:
        return peer
    named = [part.strip() for part in forwarded_for.split(",")]
    return named[-min(proxies, len(named))]
