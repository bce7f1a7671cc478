"""Request and response bodies of the control plane, as types.

Docstrings and `Meta` are the schemas' texts in the API reference. Keywords under `extra_json_schema` describe a rule
that is checked elsewhere; they never change what is decoded.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mauve.core.app import APP_NAME_CHARACTERS_MAX, App, AppType, Ownership
from mauve.core.credential import AppKey, KeyKind
from mauve.core.problems import Code, Problem

T = TypeVar("T")

APP_ID_EXAMPLE: Final = "app_7Gq2mVx0sYb4TnLk9RcE"
PROJECT_ID_EXAMPLE: Final = "proj_7Gq2mVx0sYb4TnLk9RcE"
KEY_ID_EXAMPLE: Final = "key_7Gq2mVx0sYb4TnLk9RcE"
MASKED_KEY_EXAMPLE: Final = "sk_live_Ab3d…x9Zq"
WEBHOOK_SECRET_EXAMPLE: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - not a real one

# The characters that `core.app` refuses in a name, and those that Python calls white space.
_NAME_CHARACTER: Final = r"[^\u0000-\u0008\u000e-\u001f\u007f-\u009f]"
_SPACES: Final = r"\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_VISIBLE: Final = rf"[^\u0000-\u0020\u007f-\u00a0{_SPACES}]"

_NAME_META: Final = Meta(
    description="Surrounding white space is removed; inner white space is collapsed.",
    examples=["My first app"],
    extra_json_schema={
        "minLength": 1,
        "maxLength": APP_NAME_CHARACTERS_MAX,
        "pattern": f"^{_NAME_CHARACTER}*{_VISIBLE}{_NAME_CHARACTER}*$",
    },
)
_OWNERSHIP_META: Final = Meta(description="Whether you run the app for yourself or for a client.")
_TYPE_META: Final = Meta(description="The kind of app.")

_Kind = Annotated[
    KeyKind,
    Meta(description="`sk`: a server key, full access. `pk`: a publishable key, behavioral events only."),
]
_KeyId = Annotated[str, Meta(description="Opaque; identifies the key when you revoke it.", examples=[KEY_ID_EXAMPLE])]
_EpochMs = Annotated[int, Meta(description="Epoch milliseconds.", examples=[1794712763680])]
_WholeKey = Annotated[str, Meta(description="The full key. Shown once, never again.", examples=["sk_live_" + "0" * 40])]


class NewAppBody(msgspec.Struct, frozen=True):
    """An app to create."""

    name: Annotated[str, _NAME_META]
    ownership: Annotated[Ownership, _OWNERSHIP_META] = Ownership.MINE
    type: Annotated[AppType, _TYPE_META] = AppType.SAAS


class AppChangesBody(msgspec.Struct, frozen=True):
    """The fields to change: at least one. Either all changes are applied or none."""

    name: Annotated[str, _NAME_META] | UnsetType = UNSET
    ownership: Annotated[Ownership, _OWNERSHIP_META] | UnsetType = UNSET
    type: Annotated[AppType, _TYPE_META] | UnsetType = UNSET


class NewKeyBody(msgspec.Struct, frozen=True):
    """A key to mint."""

    kind: _Kind


class WebhookSecretBody(msgspec.Struct, frozen=True):
    """A signing secret to save, as the biller shows it."""

    secret: Annotated[
        str,
        Meta(
            description="Surrounding white space is removed. Replaces any earlier secret; cannot be read back.",
            examples=[WEBHOOK_SECRET_EXAMPLE],
            extra_json_schema={"minLength": 1, "pattern": f"[^{_SPACES}]"},
        ),
    ]
    environment: (
        Annotated[
            str,
            Meta(
                description="If given, must be the token's environment. All tokens are live tokens so far.",
                extra_json_schema={"enum": ["live"]},
            ),
        ]
        | UnsetType
    ) = UNSET


class AppBody(msgspec.Struct, frozen=True):
    """An app."""

    app_id: Annotated[
        str, Meta(description="Opaque; identifies the app in control-plane paths.", examples=[APP_ID_EXAMPLE])
    ]
    public_id: Annotated[
        str,
        Meta(
            description="The app's project id: reported by metric reads, used in webhook paths.",
            examples=[PROJECT_ID_EXAMPLE],
        ),
    ]
    test_public_id: Annotated[
        Annotated[str, Meta(examples=[PROJECT_ID_EXAMPLE])] | None,
        Meta(description="The project id of the test environment; null until a test signing secret is saved."),
    ]
    name: Annotated[str, _NAME_META]
    ownership: Annotated[Ownership, _OWNERSHIP_META]
    type: Annotated[AppType, _TYPE_META]
    first_event_at: Annotated[
        int | None, Meta(description="Epoch milliseconds of the first event ever received; null if there is none.")
    ]
    has_biller_a_webhook: Annotated[bool, Meta(description="Whether a signing secret for Stripe (biller_a) is set.")]
    has_biller_b_webhook: Annotated[bool, Meta(description="Whether a signing secret for Polar (biller_b) is set.")]
    created_at: _EpochMs


class CreatedAppBody(AppBody, frozen=True):
    """An app with its first server key."""

    sk_key: _WholeKey


class AppKeyBody(msgspec.Struct, frozen=True):
    """A key, masked."""

    key_id: _KeyId
    kind: _Kind
    masked: Annotated[
        str,
        Meta(
            description="The prefix, the first four characters, an ellipsis and the last four.",
            examples=[MASKED_KEY_EXAMPLE],
        ),
    ]
    revoked: Annotated[bool, Meta(description="Permanent. Revoked keys stay listed.")]
    mirrored_at: Annotated[
        int | None,
        Meta(description="Epoch milliseconds of the last publication; null if the key may not work yet."),
    ]
    created_at: _EpochMs


class MintedKeyBody(msgspec.Struct, frozen=True):
    """A new key."""

    key_id: _KeyId
    key: _WholeKey


_DECODERS: Final[Mapping[type, msgspec.json.Decoder[Any]]] = {
    type_: msgspec.json.Decoder(type_) for type_ in (NewAppBody, AppChangesBody, NewKeyBody, WebhookSecretBody)
}


def decode(body: bytes | None, type_: type[T]) -> T:
    """Decode the body as the given type, or raise a 400. The message names the field, never its value."""
    if body is None:
        raise invalid_body("the body is larger than 64 KiB, was cut off, or did not arrive in time")
    try:
        body.decode()  # msgspec does not check the UTF-8 of fields it skips
        decoded: T = _DECODERS[type_].decode(body)
    except UnicodeDecodeError:
        raise invalid_body("the body is not valid UTF-8") from None
    except msgspec.ValidationError as error:
        raise invalid_body(_without_values(str(error))) from None
    except (msgspec.DecodeError, RecursionError):
        raise invalid_body("the body is not valid JSON") from None
    return decoded


def invalid_body(message: str) -> Problem:
    return Problem(Code.INVALID_BODY, message)


def app_body(app: App) -> AppBody:
    return AppBody(**_named(AppBody, app))


def created_app_body(app: App, sk_key: str) -> CreatedAppBody:
    return CreatedAppBody(**_named(AppBody, app), sk_key=sk_key)


def key_body(key: AppKey) -> AppKeyBody:
    return AppKeyBody(**_named(AppKeyBody, key))


def _named(body: type[msgspec.Struct], source: App | AppKey) -> dict[str, Any]:
    return {name: getattr(source, name) for name in body.__struct_fields__}


def _without_values(message: str) -> str:
    """Return msgspec's message, unless it quotes the rejected value, which could be a secret."""
    _, at, path = message.rpartition(" - at ")
    return f"not an allowed value{at}{path}" if message.startswith("Invalid enum value") else message
