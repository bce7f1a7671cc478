"""Verify that a delivery was signed with the project's secret, by each biller's scheme.

Nothing here raises, whatever the headers hold: a signature is valid, or it fails for a reason. The reason is only for
the owner; the sender learns only that the delivery was refused.
"""

import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

from mauve.core.secret import Secret
from mauve.core.standard_webhooks import decoded_key, signed_content, strict_base64

WINDOW_S: Final = 300
_HEADER_CHARACTERS_MAX: Final = 8 * 1024
_SIGNATURES_MAX: Final = 16
_DIGEST_BYTES: Final = 32
_TIMESTAMP: Final = re.compile(r"[1-9][0-9]{0,11}")
_HEX_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MESSAGE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_DECODED_KEY_BYTES: Final = range(24, 65)  # as the Standard Webhooks specification allows

Headers = Callable[[str], Sequence[str]]
"""Returns every value of a header, by its lowercase name."""


class SignatureFailure(StrEnum):
    """Why a signature is not valid."""

    MISSING = "signature_missing"
    MALFORMED = "signature_malformed"
    OUTSIDE_WINDOW = "timestamp_outside_window"
    MISMATCH = "signature_mismatch"


def check_biller_a_signature(headers: Headers, body: bytes, secret: Secret, now_s: int) -> SignatureFailure | None:
    """Verify `t=…,v1=…[,v1=…]`: the hexadecimal HMAC of `t.body`, keyed with the full text of the secret."""
    values = headers("stripe-signature") or headers("biller-a-signature")
    if not values:
        return SignatureFailure.MISSING
    header = _only(values)
    pairs = [element.strip(" \t").partition("=") for element in header.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    if len(times) != 1 or not _TIMESTAMP.fullmatch(times[0]):
        return SignatureFailure.MALFORMED
    candidates = [value for name, _, value in pairs if name == "v1"][:_SIGNATURES_MAX]
    signatures = [bytes.fromhex(value) for value in candidates if _HEX_DIGEST.fullmatch(value)]
    # Never decoded from base64, although its prefix suggests it.
    return _verify([secret.reveal().encode()], times[0], f"{times[0]}.".encode() + body, signatures, now_s)


def check_biller_b_signature(headers: Headers, body: bytes, secret: Secret, now_s: int) -> SignatureFailure | None:
    """Verify by Standard Webhooks: `v1,base64` of the HMAC of `id.timestamp.body`, several separated by spaces."""
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    if not all(headers(name) for name in names):
        return SignatureFailure.MISSING
    message_id, timestamp, header = (_only(headers(name)) for name in names)
    if not _MESSAGE_ID.fullmatch(message_id) or not _TIMESTAMP.fullmatch(timestamp):
        return SignatureFailure.MALFORMED
    candidates = [token[3:] for token in header.split(" ") if token.startswith("v1,")][:_SIGNATURES_MAX]
    signatures = [decoded for decoded in map(strict_base64, candidates) if len(decoded) == _DIGEST_BYTES]
    message = signed_content(message_id, timestamp, body)
    return _verify(_standard_keys(secret), timestamp, message, signatures, now_s)


def _verify(
    keys: Iterable[bytes], timestamp: str, message: bytes, signatures: Sequence[bytes], now_s: int
) -> SignatureFailure | None:
    if not signatures:
        return SignatureFailure.MALFORMED
    # Before the digest, which costs more: refuse a replayed old delivery without reading its body.
    if abs(now_s - int(timestamp)) > WINDOW_S:
        return SignatureFailure.OUTSIDE_WINDOW
    is_valid = False
    for key in keys:
        expected = hmac.digest(key, message, "sha256")
        for signature in signatures:  # All of them, so that timing reveals nothing.
            is_valid |= hmac.compare_digest(expected, signature)
    return None if is_valid else SignatureFailure.MISMATCH


def _standard_keys(secret: Secret) -> list[bytes]:
    """Return both keys that a secret may mean.

    By the specification it is base64 after `whsec_`. But biller B signs with the raw text, prefix included, and the two
    look alike. A forger must know the secret either way.
    """
    text = secret.reveal()
    decoded = decoded_key(text)
    return [text.encode(), decoded] if len(decoded) in _DECODED_KEY_BYTES else [text.encode()]


def _only(values: Sequence[str]) -> str:
    """Return the header's value, or an invalid one if the header was sent twice or is huge."""
    return values[0] if len(values) == 1 and len(values[0]) <= _HEADER_CHARACTERS_MAX else ""
