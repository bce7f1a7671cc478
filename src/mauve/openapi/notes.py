"""What the types cannot say: the meaning of each field, its format, and an example.

By schema, then by field. Keywords are added to those of the type, or take their place if they say what the values are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mauve.core.app import APP_NAME_CHARACTERS_MAX
from mauve.ingest.rules import MINOR_UNITS_MAX

# The same characters as `core.app` refuses, and as Python calls white space.
_NAME_CHARACTER: Final = r"[^\u0000-\u0008\u000e-\u001f\u007f-\u009f]"
_SPACES: Final = r"\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_INK: Final = rf"[^\u0000-\u0020\u007f-\u00a0{_SPACES}]"
APP_NAME: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": APP_NAME_CHARACTERS_MAX,
    "pattern": f"^{_NAME_CHARACTER}*{_INK}{_NAME_CHARACTER}*$",
}
MOMENT: Final = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer"}, {"type": "null"}]}
MINOR_UNITS: Final = {"type": "integer", "minimum": 0, "maximum": MINOR_UNITS_MAX}
_EPOCH_MS: Final = {"examples": [1794712763680]}
_SERVER_KEY: Final = "sk_live_" + "0" * 40

Keywords = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Note:
    text: str
    fields: Mapping[str, Keywords] = field(default_factory=dict)
    keywords: Keywords = field(default_factory=dict)  # of the schema itself


def example_id(prefix: str) -> str:
    return f"{prefix}_7Gq2mVx0sYb4TnLk9RcE"


def _id(prefix: str) -> Keywords:
    return {"examples": [example_id(prefix)]}


def _or_null(keywords: Keywords) -> Keywords:
    return {"anyOf": [keywords, {"type": "null"}]}


_NAME: Final = {**APP_NAME, "description": "Trimmed, inner white space collapsed.", "examples": ["My first app"]}
_OWNERSHIP: Final = {"description": "Whether you run the app yourself or for a client."}
_TYPE: Final = {"description": "What kind of thing the app is."}
_APP: Final[Mapping[str, Keywords]] = {
    "app_id": {**_id("app"), "description": "Opaque; names the app in every control path."},
    "public_id": {**_id("proj"), "description": "The app's project: reported by metric reads, used in webhook paths."},
    "test_public_id": {
        **_or_null({"type": "string", **_id("proj")}),
        "description": "The project of the test plane; null until a test signing secret was saved.",
    },
    "name": _NAME,
    "ownership": _OWNERSHIP,
    "type": _TYPE,
    "first_event_at": {"description": "Epoch milliseconds of the first event ever received; null if there was none."},
    "has_biller_a_webhook": {"description": "Whether a signing secret for Stripe (biller_a) is set."},
    "has_biller_b_webhook": {"description": "Whether a signing secret for Polar (biller_b) is set."},
    "created_at": {**_EPOCH_MS, "description": "Epoch milliseconds."},
}
_EVENT: Final[Mapping[str, Keywords]] = {
    "name": {
        "description": "What happened. `user_signup` counts as a signup; `payment` is reserved for payments.",
        "not": {"const": "payment"},
        "examples": ["report_opened"],
    },
    "user": {"description": "Who did it: opaque, never checked. Empty equals absent; events without are not in MAU."},
    "id": {"description": "Counted once in seven days, however often it is sent. Give one if you retry."},
    "at": {
        **MOMENT,
        "description": "When it happened, by the client's clock. Kept within 7 days back, 5 minutes ahead.",
    },
    "sent_at": {**MOMENT, "description": "When the batch was sent, by the same clock: cancels its skew."},
    "props": {"description": "One level deep: strings of at most 1,024 characters, numbers, booleans, null."},
}
_ERROR: Final[Mapping[str, Keywords]] = {"error": {"description": "What to do about it. Never match on this text."}}
_ERRORS: Final = {"description": "The items that were refused, and why."}
_RESULT: Final[Mapping[str, Keywords]] = {
    "accepted": {"description": "Items that are on the disk; repeats count as accepted."},
    "rejected": {"description": "Items that were refused."},
    "errors": _ERRORS,
}
_ROWS: Final = {"description": "Payments and subscriptions that the delivery became."}
_MIRRORED_AT: Final = "Epoch milliseconds at which the key was last published; null: it may not work yet."

NOTES: Final[Mapping[str, Note]] = {
    "App": Note("An app, as every read shows it.", _APP),
    "CreatedApp": Note(
        "An app with its first server key.",
        {**_APP, "sk_key": {"description": "The whole key: shown this once, never again.", "examples": [_SERVER_KEY]}},
    ),
    "NewApp": Note("An app to create.", {"name": _NAME, "ownership": _OWNERSHIP, "type": _TYPE}),
    "AppChanges": Note(
        "What to change; at least one field. All of it is applied, or nothing.",
        {"name": _NAME, "ownership": _OWNERSHIP, "type": _TYPE},
        {"anyOf": [{"required": [name]} for name in ("name", "ownership", "type")]},
    ),
    "AppKey": Note(
        "A key, as every read shows it: masked.",
        {
            "key_id": {**_id("key"), "description": "Opaque; names the key when it is revoked."},
            "kind": {},
            "masked": {
                "description": "Prefix, four characters, an ellipsis, the last four.",
                "examples": ["sk_live_Ab3d…x9Zq"],
            },
            "revoked": {"description": "For good. Revoked keys stay listed."},
            "mirrored_at": {"description": _MIRRORED_AT},
            "created_at": {**_EPOCH_MS, "description": "Epoch milliseconds."},
        },
    ),
    "MintedKey": Note(
        "A new key.",
        {
            "key_id": {**_id("key"), "description": "Opaque; names the key when it is revoked."},
            "key": {"description": "The whole key: shown this once, never again.", "examples": [_SERVER_KEY]},
        },
    ),
    "NewKey": Note("A key to mint.", {"kind": {}}),
    "WebhookSecret": Note(
        "A signing secret to save, as the biller shows it.",
        {
            "secret": {
                "description": "Trimmed. It replaces any earlier one and can never be read back.",
                "minLength": 1,
                "pattern": f"[^{_SPACES}]",
                "examples": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
            },
            "environment": {
                "description": "Must be the plane of the token, if it is given; so far every token is of the live one.",
                "enum": ["live"],
            },
        },
    ),
    "Ownership": Note("Whose app it is."),
    "AppType": Note("What kind of thing an app is."),
    "KeyKind": Note("`sk`: a server key, for everything. `pk`: a publishable key, for behavioural events only."),
    "Event": Note("Something that a user did. Unknown fields are ignored; null equals absent.", _EVENT),
    "Payment": Note(
        "An event with money in it. The first one with an id stands, for good.",
        {
            **_EVENT,
            "name": {"const": "payment"},
            "id": {
                "type": "string",
                "minLength": 1,
                "maxLength": 256,
                "description": "Required: the same payment may be sent again, a different one under its id is refused.",
            },
            "props": {"$ref": "#/components/schemas/PaymentProps"},
        },
        {"required": ["name", "id", "props"]},
    ),
    "Subscription": Note(
        "The state of a subscription. The latest `at` wins; unknown fields are ignored.",
        {
            "type": {"const": "subscription", "description": "Nothing else is supported."},
            "id": {"description": "The subscription's stable id at the biller.", "examples": ["sub_1"]},
            "status": {
                "description": "Free text; only `active` counts toward MRR. Usual are trialing, past_due and canceled.",
                "examples": ["active"],
            },
            "mrr": {"description": "Minor units a month; of an annual plan the amount divided by 12."},
            "currency": {"$ref": "#/components/schemas/Currency", "description": "In any case; kept in lowercase."},
            "at": {
                "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}],
                "description": "The version's moment; that of its arrival if absent.",
            },
        },
    ),
    "ItemError": Note(
        "Why one item of a batch was refused.",
        {
            "index": {"description": "The item's place in the batch, from zero."},
            "reason": {
                "description": "Which field, and what it must be.",
                "examples": ["a payment requires a server key"],
            },
        },
    ),
    "IngestResult": Note("What became of a batch.", _RESULT),
    "WebhookResult": Note(
        "A delivery that was taken in, or is of no interest.",
        {"rows": _ROWS, "truncated": {"description": "Fields whose text was shortened; the payment is kept."}},
    ),
    "WebhookSuspended": Note(
        "A delivery that was verified and acknowledged but not stored.",
        {"rows": {}, "suspended": {"const": True}, "code": {}},
    ),
    "DataProblem": Note("Why a data plane refuses a request.", _ERROR),
    "BatchRefused": Note("Every item of the batch is invalid.", {**_ERROR, "errors": _ERRORS}),
    "IngestSuspended": Note("The organization is suspended. Repeating does not help.", {**_ERROR, "code": {}}),
    "InsufficientScope": Note("The token lacks a scope.", {**_ERROR, "code": {}}),
    "EventCapReached": Note(
        "The cap that the organization set is reached; nothing was stored or billed. Match on `code`.",
        {
            **_ERROR,
            "code": {},
            "cap_events": {"description": "The cap, in events a billing period."},
            "resets_at": {"description": "Epoch milliseconds at which the next period begins."},
        },
    ),
    "AllowanceSpent": Note(
        "What control tokens may read in this billing period is spent.",
        {
            **_ERROR,
            "reason": {},
            "scope": {"description": "What is spent: every query, or raw scans alone."},
            "reset_at": {"format": "date-time", "description": "When it is there again."},
        },
    ),
    "ControlFault": Note(
        "Match on `code`, never on the message.", {"code": {}, "message": {"description": "What to do about it."}}
    ),
    "ControlProblem": Note("Why the control plane refuses a request.", {"error": {}}),
    "Health": Note("The process is up."),
    "Readiness": Note(
        "Whether every engine can be reached.",
        {
            "ok": {"description": "True if all of them can."},
            "engines": {"description": "By name."},
            "backlog_bytes": {"description": "What waits to be loaded. On the main port only."},
            "load_lag_ms": {"description": "How far loading is behind. On the main port only."},
        },
    ),
}
