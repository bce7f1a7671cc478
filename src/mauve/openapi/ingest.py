"""The operations of the ingest plane."""

from typing import Final

from mauve.core.problems import Code, Problem, unauthorized
from mauve.core.rejections import Fault, RejectionCode
from mauve.ingest import accept
from mauve.ingest.browsers import PREFLIGHT, for_browsers
from mauve.ingest.plane import BODY_BYTES_MAX
from mauve.ingest.rules import Rejection
from mauve.ingest.wire import ITEM_BYTES_MAX, ITEMS_MAX
from mauve.openapi.operation import (
    Answer,
    Body,
    Example,
    Operation,
    Parameter,
    Schema,
    data_refusal,
    other_method,
    ref,
)
from mauve.openapi.security import PUBLISHABLE_KEY, SERVER_KEY
from mauve.web.compression import too_large
from mauve.web.messages import JSON

TAG: Final = "Ingest"
_RESET_AT: Final = 1_796_083_200_000
_EVENT: Final = {"name": "report_opened", "user": "ann", "id": "click-1", "props": {"plan": "pro"}}
_SIGNUP: Final = {"name": "user_signup", "user": "ann", "at": "2026-11-14T09:30:00Z"}
_PAYMENT: Final = {
    "name": "payment",
    "user": "ann",
    "id": "invoice-1",
    "props": {"amount": 1999, "currency": "eur"},
}
_SUBSCRIPTION: Final = {"type": "subscription", "id": "sub-1", "status": "active", "mrr": 1999, "currency": "eur"}
_NEEDS_SERVER_KEY: Final = Rejection(1, Fault(RejectionCode.SERVER_KEY_REQUIRED, "a payment requires a server key"))
_NO_NAME: Final = Fault(RejectionCode.NAME, "name is required: a string of 1 to 128 characters")
_NO_TYPE: Final = Fault(RejectionCode.TYPE, 'type is required: only "subscription" is supported')
_NO_CURRENCY: Final = Fault(RejectionCode.CURRENCY, "currency is required: an ISO 4217 code")

_ENCODING: Final = Parameter(
    "Content-Encoding",
    "header",
    "How the body is compressed, if it is: `gzip` or `zstd`. Every limit holds for what it inflates to.",
    {"type": "string", "enum": ["gzip", "x-gzip", "zstd", "identity", ""]},
)
_UNAUTHORIZED: Final = data_refusal("The key is missing, unknown or revoked, or is a control token.", unauthorized())
_UNSUPPORTED: Final = data_refusal(
    "Content-Type is not application/json, or Content-Encoding is not one that is taken.",
    Problem(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"),
)
_TOO_LARGE: Final = data_refusal("The body is too large.", too_large(BODY_BYTES_MAX))
_TOO_MANY: Final = data_refusal(
    "There are too many items.", Problem(Code.TOO_LARGE, f"a request holds at most {ITEMS_MAX} items"), "too_many"
)
_MALFORMED: Final = data_refusal(
    "The body is not JSON, not an object or array, or was cut off.",
    Problem(Code.MALFORMED, "the body is not valid JSON, or not an object or array"),
)
_NOT_STORED: Final = data_refusal(
    "Nothing could be stored now, and nothing was: send it again.",
    Problem(Code.NOT_STORED, "could not be put into the durable queue: nothing was stored, retry", retry_after_s=1),
)


def _one_or_many(*names: str) -> Schema:
    items = ref(names[0]) if len(names) == 1 else {"anyOf": [ref(name) for name in names]}
    return {"anyOf": [*(ref(name) for name in names), {"type": "array", "items": items, "maxItems": ITEMS_MAX}]}


def _accepted() -> Answer:
    return Answer("accepted", "Everything is on the disk.", accept.reply(2, [], JSON), ref("IngestResult"))


def _invalid(fault: Fault) -> Answer:
    reply = accept.reply(1, [Rejection(0, fault)], JSON)
    return Answer("every_item_invalid", "Every item of the batch is invalid.", reply, ref("BatchRefused"))


def _for_browsers(answer: Answer) -> Answer:
    return Answer(answer.name, answer.when, for_browsers(answer.reply), answer.schema, answer.code)


_EVENT_ANSWERS: Final = (
    _accepted(),
    Answer(
        "partly_accepted",
        "Some items were refused; the others are on the disk.",
        accept.reply(2, [_NEEDS_SERVER_KEY], JSON),
        ref("IngestResult"),
    ),
    _MALFORMED,
    _UNAUTHORIZED,
    data_refusal(
        "There is no live subscription behind the organization. Repeating does not help.",
        Problem(
            Code.INGEST_SUSPENDED,
            "ingest is suspended: settle the open invoice or restart the subscription, then send again",
        ),
    ),
    data_refusal(
        "A publishable key sends nothing but payments.", Problem(Code.FORBIDDEN, "a payment requires a server key")
    ),
    data_refusal(
        "The organization's own event cap is reached; it lifts with the next billing period.",
        Problem(
            Code.EVENT_CAP_REACHED,
            "the event cap of this billing period is reached: raise the cap, or wait until it resets",
            cap_events=1_000_000,
            resets_at=_RESET_AT,
        ),
    ),
    other_method("POST"),
    _TOO_LARGE,
    _TOO_MANY,
    _UNSUPPORTED,
    _invalid(_NO_NAME),
    data_refusal(
        "A publishable key is used too often.",
        Problem(Code.RATE_LIMITED, "this publishable key is used too often: slow down", retry_after_s=1),
    ),
    _NOT_STORED,
)

ROUTES: Final = (
    Operation(
        method="POST",
        path="/v1/events",
        name="writeEvents",
        tag=TAG,
        summary="Write events and payments",
        text=(
            "One event, or an array of them. 202 means that they are on the disk; they can be read a few seconds "
            "later.\n\nItems are judged one by one: the valid ones are taken, the others are listed under `errors`. "
            f"An item that takes more than {ITEM_BYTES_MAX // 1024} KB as compact JSON is refused by itself. The same "
            "`id` may be sent again without counting twice, so a batch can simply be repeated when no answer came."
        ),
        security=(SERVER_KEY, PUBLISHABLE_KEY),
        parameters=(_ENCODING,),
        body=Body(
            f"At most {ITEMS_MAX} items and 1 MB. A payment needs a server key.",
            _one_or_many("Event", "Payment"),
            (
                Example("batch", "Several at once", [_SIGNUP, _EVENT, _PAYMENT]),
                Example("event", "One event", _EVENT),
                Example("payment", "One payment", _PAYMENT),
            ),
        ),
        answers=tuple(_for_browsers(answer) for answer in _EVENT_ANSWERS),
    ),
    Operation(
        method="OPTIONS",
        path="/v1/events",
        name="askToWriteEvents",
        tag=TAG,
        summary="Ask whether a page may write events",
        text="What a browser sends before a page of another origin writes events. Any origin may.",
        answers=(Answer("allowed", "The page may go on.", PREFLIGHT),),
    ),
    Operation(
        method="POST",
        path="/v1/objects",
        name="writeSubscriptions",
        tag=TAG,
        summary="Write the state of subscriptions",
        text=(
            "One subscription, or an array of them. Each replaces what was known under its `id`, unless that is of a "
            "later `at`. Taken in whatever the organization's standing and cap."
        ),
        security=(SERVER_KEY,),
        parameters=(_ENCODING,),
        body=Body(
            f"At most {ITEMS_MAX} items and 1 MB.",
            _one_or_many("Subscription"),
            (Example("subscription", "One subscription", _SUBSCRIPTION),),
        ),
        answers=(
            _accepted(),
            Answer(
                "partly_accepted",
                "Some items were refused; the others are on the disk.",
                accept.reply(2, [Rejection(1, _NO_CURRENCY)], JSON),
                ref("IngestResult"),
            ),
            _MALFORMED,
            _UNAUTHORIZED,
            data_refusal(
                "The key is a publishable one.",
                Problem(Code.FORBIDDEN, "subscriptions need a server key: use one that begins with sk_"),
            ),
            other_method("POST"),
            _TOO_LARGE,
            _TOO_MANY,
            _UNSUPPORTED,
            _invalid(_NO_TYPE),
            _NOT_STORED,
        ),
    ),
)
