"""The address to which billers deliver."""

from http import HTTPStatus
from typing import Final

from mauve.core.biller import Provider
from mauve.core.problems import Code, Problem, unauthorized, unknown_path
from mauve.ingest.webhooks.endpoint import BODY_BYTES_MAX
from mauve.ingest.webhooks.signatures import WINDOW_S
from mauve.openapi.notes import example_id
from mauve.openapi.operation import Answer, Body, Example, Operation, Parameter, data_refusal, other_method, ref
from mauve.openapi.security import BILLER_A, BILLER_B
from mauve.web.messages import json_reply

TAG: Final = "Billing webhooks"
_MEGABYTES: Final = BODY_BYTES_MAX // 1024**2
_MINUTES: Final = WINDOW_S // 60
_DELIVERY: Final = {"id": "evt_1", "type": "customer.created", "data": {"object": {}}}

ROUTES: Final = (
    Operation(
        method="POST",
        path="/v1/webhooks/{provider}/{project_id}",
        name="deliverWebhook",
        tag=TAG,
        summary="Take in a biller's delivery",
        text=(
            "Called by the biller, not by you: give it this address. Paid invoices and orders become payments, "
            "subscriptions become subscription state; every other type is acknowledged and left alone. A delivery that "
            "is repeated moves money once.\n\nEach plane of a project has its own address and signing secret. Save the "
            "secret first: without one the address does not exist."
        ),
        security=(BILLER_A, BILLER_B),
        parameters=(
            Parameter(
                "provider",
                "path",
                "Who delivers: Stripe is `biller_a`, Polar is `biller_b`.",
                {"type": "string", "enum": [provider.value for provider in Provider]},
                Provider.BILLER_A,
                required=True,
            ),
            Parameter(
                "project_id",
                "path",
                "The app's `public_id`, or its `test_public_id` for the test plane. Not its `app_id`.",
                {"type": "string"},
                example_id("proj"),
                required=True,
            ),
            Parameter("Webhook-Id", "header", "Polar (biller_b): the delivery's id.", {"type": "string"}),
            Parameter("Webhook-Timestamp", "header", "Polar (biller_b): epoch seconds.", {"type": "string"}),
        ),
        body=Body(
            f"Whatever the biller sends, at most {_MEGABYTES} MB and uncompressed. The signature is over these bytes.",
            {},
            (Example("delivery", "A delivery", _DELIVERY),),
        ),
        answers=(
            Answer(
                "taken",
                "The delivery is on the disk.",
                json_reply(HTTPStatus.OK, {"ok": True, "rows": 1}),
                ref("WebhookResult"),
            ),
            Answer(
                "shortened",
                "A customer's text was too long and was shortened; the payment is kept.",
                json_reply(HTTPStatus.OK, {"ok": True, "rows": 1, "truncated": ["customer_name"]}),
                ref("WebhookResult"),
            ),
            Answer(
                "suspended",
                "The organization is suspended: acknowledged, not stored.",
                json_reply(HTTPStatus.OK, {"ok": True, "rows": 0, "suspended": True, "code": Code.INGEST_SUSPENDED}),
                ref("WebhookSuspended"),
            ),
            data_refusal(
                "The body was cut off.",
                Problem(Code.MALFORMED, "the body was cut off or did not arrive in time: send it again"),
            ),
            data_refusal(f"The signature is missing, wrong or more than {_MINUTES} minutes old.", unauthorized()),
            data_refusal("There is no such provider or project, or no signing secret was saved.", unknown_path()),
            other_method("POST"),
            data_refusal(
                f"The body is over {_MEGABYTES} MB.",
                Problem(Code.TOO_LARGE, f"a delivery has at most {BODY_BYTES_MAX} bytes"),
            ),
            data_refusal(
                "Content-Type is not application/json, or the body is compressed.",
                Problem(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json, without compression"),
            ),
            data_refusal(
                "The delivery could not be stored now, and was not: the biller delivers it again.",
                Problem(
                    Code.NOT_STORED,
                    "could not be put into the durable queue: nothing was stored, retry",
                    retry_after_s=1,
                ),
            ),
        ),
    ),
)
