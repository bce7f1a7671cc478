"""What a page may say after something was done, by the word in its address. No other text is ever taken from there."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

NOTICES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "saved": "Saved.",
        "key-revoked": "The key is revoked. It stops working within seconds.",
        "token-revoked": "The token is revoked. It stops working within seconds.",
        "secret-saved": "The signing secret is saved, encrypted. It will not be shown again.",
        "role-changed": "The role is changed.",
        "member-removed": "The member is removed and signed out everywhere.",
        "password-changed": "The password is changed. You are signed out everywhere else.",
        "session-ended": "That browser is signed out.",
        "signed-out": "You are signed out.",
        "signed-out-everywhere": "You are signed out in every browser.",
    }
)
