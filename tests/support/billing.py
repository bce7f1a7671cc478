"""Sample deliveries of both billers, and signatures for them."""

import base64
import hmac
import json
from pathlib import Path
from typing import Any

from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.ingest.webhooks.billers import ParsedDelivery, parse_delivery
from mauve.ingest.webhooks.entries import Endpoint, MappedDelivery, PaymentTime, map_delivery, near_arrival
from mauve.ingest.webhooks.parsed import ParsedEvent

SAMPLES = Path(__file__).parents[1] / "samples" / "billing"
EXPECTED = json.loads((SAMPLES / "_expected.json").read_text())
NOW_S = 1_793_000_007
NOW = NOW_S * 1000
SECRET_A = "whsec_5WbX5kEWLlfzsGNjH64I8lOOqUB6e8FH"
SECRET_B = "whsec_Qm9ndXNTZWNyZXRGb3JWZWN0b3JzT25seTEyMzQ1Njc"


def sample_bytes(name: str) -> bytes:
    return (SAMPLES / f"{name}.json").read_bytes()


def sample(name: str) -> Any:
    return json.loads(sample_bytes(name))


def provider_of(name: str) -> Provider:
    return Provider.BILLER_A if name.startswith("stripe") else Provider.BILLER_B


def parsed(provider: Provider, event: object, environment: Environment | None = None) -> ParsedDelivery:
    """Parse a delivery, by default for the environment that it claims."""
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    is_test = b'"livemode":false' in body.replace(b" ", b"")
    return parse_delivery(provider, body, environment or (Environment.TEST if is_test else Environment.LIVE))


def parsed_event(provider: Provider, event: object) -> ParsedEvent:
    return parsed(provider, event).event


def mapped_for(
    provider: Provider,
    event: object,
    project: str = "proj_1",
    received_at: int = NOW,
    payment_time: PaymentTime = near_arrival,
    environment: Environment = Environment.LIVE,
) -> MappedDelivery:
    endpoint = Endpoint(project, "org_1", environment, provider)
    return map_delivery(parsed(provider, event, environment), endpoint, received_at, payment_time)


def signed_a(body: bytes, secret: str = SECRET_A, at: int = NOW_S) -> dict[str, str]:
    digest = hmac.digest(secret.encode(), f"{at}.".encode() + body, "sha256").hex()
    return {"stripe-signature": f"t={at},v1={digest}"}


def signed_b(body: bytes, secret: str = SECRET_B, at: int = NOW_S, message_id: str = "msg_1") -> dict[str, str]:
    digest = hmac.digest(secret.encode(), f"{message_id}.{at}.".encode() + body, "sha256")
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": message_id, "webhook-timestamp": str(at), "webhook-signature": signature}
