"""Passwords: which are accepted, how they are hashed and verified, and how often they may be tried."""

import secrets
import threading
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Final, Protocol

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from mauve.core.secret import Secret
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


CHARACTERS_MIN: Final = 10
CHARACTERS_MAX: Final = 1024
_MEMORY_KIB: Final = 19 * 1024
_PASSES: Final = 2
_CONCURRENT_MAX: Final = 2  # Each takes 19 MiB and a core for about 55 ms.
_WAIT_S_MAX: Final = 2.0

hasher: Final = PasswordHasher(time_cost=_PASSES, memory_cost=_MEMORY_KIB, parallelism=1, type=Type.ID)
_slots: Final = threading.BoundedSemaphore(_CONCURRENT_MAX)


class HashingBusyError(Exception):
    """Too many passwords are being checked at once."""


def password_from(text: str) -> Secret:
    """Return the typed password in normal form: the same characters can be encoded as different code points."""
    return Secret(unicodedata.normalize("NFKC", text))


def password_problem(password: Secret, email: str) -> str | None:
    text = password.reveal()
    if len(text) < CHARACTERS_MIN:
        return f"a password has at least {CHARACTERS_MIN} characters: a few words make a good one"
    if len(text) > CHARACTERS_MAX:
        return f"a password has at most {CHARACTERS_MAX} characters"
    if text.lower() == email:
        return "the password must not be the e-mail address"
    if len(set(text)) == 1:
        return "a password is more than one character repeated"
    return None


def hash_of(password: Secret) -> str:
    with _HashingSlot():
        return hasher.hash(password.reveal())


def matches(password: Secret, password_hash: str | None) -> bool:
    """Return whether the password matches a hash. A missing hash takes as long as a wrong password."""
    with _HashingSlot():
        try:
            return hasher.verify(hash_to_check(password_hash), password.reveal()) and password_hash is not None
        except (VerificationError, InvalidHashError):
            return False


def hash_to_check(password_hash: str | None) -> str:
    """Return the hash, or for an unknown account a dummy hash that nothing matches and that costs the same."""
    return password_hash or _dummy_hash()


@cache
def _dummy_hash() -> str:
    return hasher.hash(secrets.token_hex())


class _HashingSlot:
    def __enter__(self) -> None:
        if not _slots.acquire(timeout=_WAIT_S_MAX):
            raise HashingBusyError

    def __exit__(self, *_: object) -> None:
        _slots.release()
