"""How often a password may be tried: counted before the costly check, by account, by address and by both together."""

import threading
from typing import Final

from mauve.overload.per_address import origin_of
from mauve.overload.token_bucket import TokenBuckets

PAIR_BURST: Final = 10
ADDRESS_BURST: Final = 30
ACCOUNT_BURST: Final = 1_000
_PAIR_REFILL_S: Final = 60
_ADDRESS_REFILL_S: Final = 10
_ACCOUNT_REFILL_S: Final = 6


class PasswordAttempts:
    """Three buckets must each hold one more attempt: the address's, the account's from this address, the account's.

    An address runs out of attempts at an account long before the account does: nobody locks an owner out alone.
    The account's own bucket bounds those who guess from many addresses: 1,000 tries, then ten a minute.
    An account that does not exist has buckets like any other.
    """

    def __init__(self) -> None:
        self._pairs = TokenBuckets(1 / _PAIR_REFILL_S, PAIR_BURST)
        self._addresses = TokenBuckets(1 / _ADDRESS_REFILL_S, ADDRESS_BURST)
        self._accounts = TokenBuckets(1 / _ACCOUNT_REFILL_S, ACCOUNT_BURST)
        self._taking = threading.Lock()

    def seconds_to_wait(self, email: str, address: str, now_ms: int) -> int:
        """Take one attempt; return 0, or after how many seconds to try again."""
        network = origin_of(address)
        with self._taking:
            return (
                self._addresses.seconds_to_wait(network, now_ms)
                or self._pairs.seconds_to_wait(f"{network} {email}", now_ms)
                or self._accounts.seconds_to_wait(email, now_ms)
            )


def visitor_address(peer: str, forwarded_for: str | None, proxies: int) -> str:
    """Return where a request comes from, behind as many proxies of ours as there are.

    Each proxy appends whom it heard from. Only what our own proxies appended can be believed.
    """
    if proxies == 0 or forwarded_for is None:
        return peer
    named = [part.strip() for part in forwarded_for.split(",")]
    return named[-min(proxies, len(named))]
