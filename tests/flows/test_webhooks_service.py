"""Deliveries to real processes, signed by the billers' own libraries."""

import base64
import json
import random
import socket
import time
from datetime import UTC, datetime

import httpx2 as httpx
import pytest
from polar.webhooks import validate_event
from standardwebhooks import Webhook
from stripe import WebhookSignature

from support.billing import SECRET_A, sample
from support.service import PATIENCE_S, bearer, ledger_rows, mauve_json, running, token_for

SECRET_B = "whsec_" + base64.b64encode(bytes(range(32))).decode()
# Encoded once more, the library signs with the text of the secret, as biller B itself does.
ENCODED_SECRET_B = base64.b64encode(SECRET_B.encode()).decode()
KNOCKS = 300


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("service") / "data", "--workers", "1") as started:
        yield started
        # After all these requests the log holds no secret and no traceback.
        assert [text for text in (SECRET_A, SECRET_B, "Traceback") if text in started.log()] == []


@pytest.fixture(scope="module")
def project(service):
    token = bearer(token_for(service.data))
    app = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=token).json()
    for provider, secret in (("biller_a", SECRET_A), ("biller_b", SECRET_B)):
        path = f"{service.url}/v1/apps/{app['app_id']}/webhooks/{provider}"
        assert httpx.put(path, json={"secret": secret}, headers=token).status_code == 204
    return app["public_id"]


@pytest.fixture(params=["url", "ingest_url"])
def port_url(request, service):
    """Return each of the two ports: the main one, and the workers' own."""
    return getattr(service, request.param)


def signed_by_stripe(body):
    return {"stripe-signature": WebhookSignature.generate_signature_header(body, SECRET_A)}


def signed_by_standard_webhooks(body, secret=SECRET_B):
    now = datetime.now(tz=UTC)
    signature = Webhook(secret).sign("msg_1", now, body)
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
    }


def deliver(port_url, project, provider, body, headers):
    path = f"{port_url}/v1/webhooks/{provider}/{project}"
    return httpx.post(path, content=body.encode(), headers={"content-type": "application/json"} | headers)


def test_a_delivery_signed_by_biller_as_library_is_accepted(service, project, port_url):
    event = sample("stripe_invoice_paid_long_name")
    event["data"]["object"]["id"] = f"in_{port_url[-1]}"
    body = json.dumps(event, ensure_ascii=False)
    reply = deliver(port_url, project, "biller_a", body, signed_by_stripe(body))
    assert (reply.status_code, reply.json()) == (200, {"ok": True, "rows": 1, "truncated": ["customer_name"]})
    found = ledger_rows(service.data, f"SELECT amount FROM payments WHERE id = 'stripe:in_{port_url[-1]}'")
    assert found == [(4900,)], "it is stored before the reply"


@pytest.mark.parametrize("secret", [SECRET_B, ENCODED_SECRET_B], ids=["decoded", "as it is"])
def test_a_delivery_signed_by_the_standard_library_is_accepted(project, port_url, secret):
    body = json.dumps(sample("polar_subscription_annual_seats3"))
    reply = deliver(port_url, project, "biller_b", body, signed_by_standard_webhooks(body, secret))
    assert (reply.status_code, reply.json()) == (200, {"ok": True, "rows": 1})


def test_a_delivery_that_biller_bs_own_library_verifies_is_accepted(project, port_url):
    event = sample("polar_subscription_weekly_x2")
    body = json.dumps(event)
    headers = signed_by_standard_webhooks(body, ENCODED_SECRET_B)
    assert validate_event(body, headers, SECRET_B, frozenset([event["type"]]), dict) == event
    assert deliver(port_url, project, "biller_b", body, headers).json() == {"ok": True, "rows": 1}


@pytest.mark.parametrize(("megabytes", "expected"), [(3.9, 200), (4.1, 413)])
def test_a_delivery_may_be_much_larger_than_a_batch_of_events(project, port_url, megabytes, expected):
    event = sample("stripe_invoice_paid_long_name")
    event["data"]["object"]["id"] = f"in_large_{port_url[-1]}"
    event["data"]["object"]["description"] = "x" * int(megabytes * 2**20)
    body = json.dumps(event, ensure_ascii=False)
    assert deliver(port_url, project, "biller_a", body, signed_by_stripe(body)).status_code == expected


def test_a_delivery_signed_with_the_other_secret_is_refused(project, port_url):
    body = json.dumps(sample("polar_order_paid_renewal"))
    assert deliver(port_url, project, "biller_b", body, signed_by_stripe(body)).status_code == 401
    assert deliver(port_url, project, "biller_a", body, signed_by_standard_webhooks(body)).status_code == 401


def test_a_secret_saved_on_the_command_line_works_on_both_ports(service, port_url):
    org = mauve_json(service.data, "org", "create", "Other")["org_id"]
    token = bearer(token_for(service.data, org=org))
    app = httpx.post(f"{service.url}/v1/apps", json={"name": "Another"}, headers=token).json()
    arguments = ("webhooks", "secret", "--app", app["app_id"], "--provider", "biller_a", "--test")
    saved = mauve_json(service.data, *arguments, stdin=SECRET_A)
    body = json.dumps(sample("stripe_invoice_paid_testmode"))
    assert deliver(port_url, saved["project"], "biller_a", body, signed_by_stripe(body)).json() == {
        "ok": True,
        "rows": 1,
    }


def send_raw(connection, path, headers, body):
    lines = [f"POST {path} HTTP/1.1".encode(), b"host: x", b"content-length: %d" % len(body), *headers]
    connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
    reply = b""
    while b"\r\n\r\n" not in reply:
        received = connection.recv(65536)
        if not received:
            break
        reply += received
    return int(reply.split(b" ", 2)[1]) if reply else 0


def status_of(port_url, path, headers, body):
    with socket.create_connection(("127.0.0.1", int(port_url.rpartition(":")[2])), timeout=PATIENCE_S) as connection:
        return send_raw(connection, path, [b"connection: close", *headers], body)


JSON = b"content-type: application/json"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [b"stripe-signature:"],
        [b"stripe-signature: \xff\xfe"],
        ["stripe-signature: é".encode()],
        [b"stripe-signature: t=1,v1=" + b"0" * 64, b"Stripe-Signature: t=1,v1=" + b"0" * 64],
        [b"stripe-signature: " + b"v1=00," * 5_000],
        [b"webhook-id: \xff", b"webhook-timestamp: \xff", b"webhook-signature: \xff"],
        [b"webhook-id: a", b"webhook-timestamp: 1", b"webhook-signature: v1,\xff"],
    ],
)
@pytest.mark.parametrize("provider", ["biller_a", "biller_b"])
def test_hostile_headers_are_401(project, port_url, provider, headers):
    path = f"/v1/webhooks/{provider}/{project}"
    assert status_of(port_url, path, [JSON, *headers], b"{}") == 401


def test_a_good_signature_sent_twice_is_401(project, port_url):
    body = json.dumps(sample("stripe_invoice_paid_basic"))
    good = f"stripe-signature: {signed_by_stripe(body)['stripe-signature']}".encode()
    assert status_of(port_url, f"/v1/webhooks/biller_a/{project}", [JSON, good, good], body.encode()) == 401


def test_noise_never_causes_a_500(project, port_url):
    """Whatever is sent, signed or not, the status is below 500."""
    noise = random.Random(42)
    statuses = set()
    for number in range(KNOCKS):
        body = noised(noise, json.dumps(sample("stripe_invoice_paid_basic")))
        headers = (
            signed_by_stripe(body) if number % 2 else {"stripe-signature": noised(noise, f"t={time.time():.0f},v1=ff")}
        )
        encoded = [f"{name}: {value}".encode("latin-1", "replace") for name, value in headers.items()]
        statuses.add(status_of(port_url, f"/v1/webhooks/biller_a/{project}", [JSON, *encoded], body.encode()))
    assert statuses <= {200, 400, 401}
    assert 200 in statuses


def noised(noise, text):
    """Change some characters, but none that would end a header."""
    characters = list(text)
    for _ in range(noise.randrange(1, 8)):
        characters[noise.randrange(len(characters))] = noise.choice('0é"{}[],:-.ntf9\\ue')
    return "".join(characters)
