"""What to fix when ingest answers 401. It never tells an unknown key from a revoked one, and echoes nothing."""

from typing import Final

from mauve.web.messages import Reply, bearer_credential

_MISSING: Final = "the Authorization header is missing: send Authorization: Bearer and a server key (sk_)"
_NOT_BEARER: Final = "Authorization must be Bearer and a server key (sk_)"
_CONTROL_TOKEN: Final = "this is a control token, which cannot send: use a server key (sk_)"  # noqa: S105
_WEBHOOK_SECRET: Final = "this is a webhook secret, which is only for the biller: use a server key (sk_)"  # noqa: S105
_UNKNOWN: Final = "the key is unknown or revoked: mint one on the app's Keys page or with mauve key mint"


def with_credential_hint(reply: Reply, authorization: str | None) -> Reply:
    return reply._replace(headers={**reply.headers, "x-service-hint": _hint(authorization)})


def _hint(authorization: str | None) -> str:
    if authorization is None:
        return _MISSING
    credential = bearer_credential(authorization)
    if not credential:
        return _NOT_BEARER
    if credential.startswith("ctl_"):
        return _CONTROL_TOKEN
    return _WEBHOOK_SECRET if credential.startswith(("whsec_", "polar_whs_")) else _UNKNOWN
