"""What the control plane reads and answers, as types."""

from typing import TypeVar

import msgspec

from mauve.core.app import App, AppType, Ownership
from mauve.core.credential import AppKey, KeyKind
from mauve.core.problems import Code, Problem

T = TypeVar("T")


class NewAppBody(msgspec.Struct, frozen=True):
    name: str
    ownership: Ownership = Ownership.MINE
    type: AppType = AppType.SAAS


class AppChangesBody(msgspec.Struct, frozen=True):
    name: str | msgspec.UnsetType = msgspec.UNSET
    ownership: Ownership | msgspec.UnsetType = msgspec.UNSET
    type: AppType | msgspec.UnsetType = msgspec.UNSET


class NewKeyBody(msgspec.Struct, frozen=True):
    kind: KeyKind


class WebhookSecretBody(msgspec.Struct, frozen=True):
    secret: str
    environment: str | msgspec.UnsetType = msgspec.UNSET


class AppBody(msgspec.Struct, frozen=True):
    app_id: str
    public_id: str
    test_public_id: str | None
    name: str
    ownership: Ownership
    type: AppType
    first_event_at: int | None
    has_biller_a_webhook: bool
    has_biller_b_webhook: bool
    created_at: int


class CreatedAppBody(AppBody, frozen=True):
    sk_key: str


class AppKeyBody(msgspec.Struct, frozen=True):
    key_id: str
    kind: KeyKind
    masked: str
    revoked: bool
    mirrored_at: int | None
    created_at: int


class MintedKeyBody(msgspec.Struct, frozen=True):
    key_id: str
    key: str


def decode(body: bytes | None, shape: type[T]) -> T:
    """Return the body as the given type, or raise the one 400. The message names the field, never its value."""
    if body is None:
        raise invalid_body("the body is larger than 64 KiB, was cut off, or did not arrive in time")
    try:
        body.decode()  # msgspec lets invalid UTF-8 pass in fields that it skips
        return msgspec.json.decode(body, type=shape)
    except UnicodeDecodeError:
        raise invalid_body("the body is not valid UTF-8") from None
    except msgspec.ValidationError as error:
        raise invalid_body(_without_values(str(error))) from None
    except (msgspec.DecodeError, RecursionError):
        raise invalid_body("the body is not valid JSON") from None


def invalid_body(message: str) -> Problem:
    return Problem(Code.INVALID_BODY, message)


def app_body(app: App) -> AppBody:
    return msgspec.convert(app, AppBody, from_attributes=True)


def created_app_body(app: App, sk_key: str) -> CreatedAppBody:
    fields = msgspec.structs.asdict(app_body(app))
    return CreatedAppBody(**fields, sk_key=sk_key)


def key_body(key: AppKey) -> AppKeyBody:
    return msgspec.convert(key, AppKeyBody, from_attributes=True)


def _without_values(message: str) -> str:
    """Keep msgspec's sentence unless it quotes the value that it refused: that could be a secret."""
    return message if not message.startswith("Invalid enum value") else "not an allowed value" + _place(message)


def _place(message: str) -> str:
    _, at, place = message.rpartition(" - at ")
    return at + place
