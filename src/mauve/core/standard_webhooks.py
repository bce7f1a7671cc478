"""Signatures by Standard Webhooks, as billers send them to us and as we send them."""

import base64
import binascii
import hmac
from typing import Final

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - not a secret itself


def signature_of(key: bytes, message_id: str, timestamp: str, body: bytes) -> bytes:
    return hmac.digest(key, signed_content(message_id, timestamp, body), "sha256")


def signed_content(message_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{message_id}.{timestamp}.".encode() + body


def decoded_key(secret: str) -> bytes:
    """Return the key that a secret such as `whsec_…` means, or b"" if it is not base64."""
    text = secret.removeprefix(SECRET_PREFIX)
    return strict_base64(text + "=" * (-len(text) % 4))


def strict_base64(text: str) -> bytes:
    """Return the decoded text, or b"" if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
