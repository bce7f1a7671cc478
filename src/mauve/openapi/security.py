"""The credentials, and which of them an operation takes."""

from collections.abc import Mapping
from typing import Any, Final

from mauve.core.credential import Scope

SERVER_KEY: Final[Mapping[str, list[str]]] = {"serverKey": []}
PUBLISHABLE_KEY: Final[Mapping[str, list[str]]] = {"publishableKey": []}
BILLER_A: Final[Mapping[str, list[str]]] = {"billerASignature": []}
BILLER_B: Final[Mapping[str, list[str]]] = {"billerBSignature": []}


def control_token(scope: Scope) -> Mapping[str, list[str]]:
    return {"controlToken": [scope.value]}


def _bearer(shape: str, text: str) -> Mapping[str, Any]:
    return {"type": "http", "scheme": "bearer", "bearerFormat": shape, "description": text}


def _header(name: str, text: str) -> Mapping[str, Any]:
    return {"type": "apiKey", "in": "header", "name": name, "description": text}


SCHEMES: Final[Mapping[str, Mapping[str, Any]]] = {
    "serverKey": _bearer(
        "sk_live_…",
        "A server key: one app, everything on the ingest and query planes. Keep it on your servers. "
        "`sk_test_…` writes and reads the app's test plane.",
    ),
    "publishableKey": _bearer(
        "pk_live_…",
        "A publishable key: one app, behavioural events only. It may stand in a page or an app; "
        "it never moves money and reads nothing.",
    ),
    "controlToken": _bearer(
        "ctl_live_…",
        "A control token: one organization, and of its apps what the token's scopes allow: "
        f"{', '.join(f'`{scope}`' for scope in Scope)}. No scope implies another.",
    ),
    "billerASignature": _header(
        "Stripe-Signature",
        "`t=…,v1=…`: the hexadecimal HMAC-SHA256 of the time, a dot and the body, keyed with the project's signing "
        "secret for Stripe (biller_a). `Biller-A-Signature` is read as well. At most 5 minutes old.",
    ),
    "billerBSignature": _header(
        "Webhook-Signature",
        "`v1,…`: by Standard Webhooks, the base64 HMAC-SHA256 of `Webhook-Id`, `Webhook-Timestamp` and the body, "
        "joined by dots, keyed with the project's signing secret for Polar (biller_b). At most 5 minutes old.",
    ),
}
