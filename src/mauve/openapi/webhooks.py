"""The operation of the billing webhooks."""

from typing import Final

from mauve.control.bodies import PROJECT_ID_EXAMPLE
from mauve.core.biller import Provider
from mauve.core.problems import unauthorized, unknown_webhook
from mauve.ingest.plane import incomplete_body, not_stored
from mauve.ingest.webhooks.endpoint import (
    BODY_BYTES_MAX,
    SUSPENDED,
    delivery_too_large,
    recorded_reply,
    unsupported_delivery,
)
from mauve.ingest.webhooks.signatures import WINDOW_S
from mauve.openapi.operation import (
    BILLER_A,
    BILLER_B,
    Body,
    Example,
    Operation,
    Parameter,
    Response,
    data_error,
    method_not_allowed,
    ref,
)

TAG: Final = "Billing webhooks"
_MEGABYTES: Final = BODY_BYTES_MAX // 1024**2
_MINUTES: Final = WINDOW_S // 60
_DELIVERY: Final = {"id": "evt_1", "type": "customer.created", "data": {"object": {}}}

OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/webhooks/{provider}/{project_id}",
        id="deliverWebhook",
        tag=TAG,
        summary="Receive a biller's delivery",
        description=(
            "Called by the biller, not by you: enter this address there. Paid invoices and orders become payments, "
            "subscriptions become subscription state; other types are acknowledged and ignored. A repeated delivery "
            "moves money once.\n\nEach environment of a project has its own address and signing secret. Save the "
            "secret first: the address does not exist without one."
        ),
        security=(BILLER_A, BILLER_B),
        parameters=(
            Parameter(
                "provider",
                "path",
                "The biller: `biller_a` is Stripe, `biller_b` is Polar.",
                {"type": "string", "enum": [provider.value for provider in Provider]},
                Provider.BILLER_A,
                required=True,
            ),
            Parameter(
                "project_id",
                "path",
                "The app's `public_id`, or its `test_public_id` for the test environment. Not its `app_id`.",
                {"type": "string"},
                PROJECT_ID_EXAMPLE,
                required=True,
            ),
            Parameter("Webhook-Id", "header", "Polar (biller_b): the id of the delivery.", {"type": "string"}),
            Parameter("Webhook-Timestamp", "header", "Polar (biller_b): epoch seconds.", {"type": "string"}),
        ),
        body=Body(
            f"The biller's event, at most {_MEGABYTES} MB, uncompressed. The signature covers these bytes.",
            {},
            (Example("delivery", "A delivery", _DELIVERY),),
        ),
        responses=(
            Response("taken", "The delivery is stored durably.", recorded_reply(1), ref("WebhookResult")),
            Response(
                "shortened",
                "A customer's text was too long and was shortened; the payment is kept.",
                recorded_reply(1, ["customer_name"]),
                ref("WebhookResult"),
            ),
            Response(
                "suspended",
                "The organization is suspended: acknowledged but not stored.",
                SUSPENDED,
                ref("WebhookSuspended"),
            ),
            data_error("The body was cut off.", incomplete_body()),
            data_error(f"The signature is missing, wrong or more than {_MINUTES} minutes old.", unauthorized()),
            data_error("The provider or project does not exist, or no signing secret is saved.", unknown_webhook()),
            method_not_allowed("POST"),
            data_error(f"The body is larger than {_MEGABYTES} MB.", delivery_too_large()),
            data_error("Content-Type is not application/json, or the body is compressed.", unsupported_delivery()),
            data_error("The delivery could not be stored. The biller will deliver it again.", not_stored()),
        ),
    ),
)
