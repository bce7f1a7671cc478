"""`POST /v1/webhooks/{provider}/{project_id}`: every reply, and what it stores."""

import json

import pytest

from mauve.control import operator
from mauve.control.apps import create_app
from mauve.control.bodies import NewAppBody
from mauve.control.webhook_secrets import save_secret
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret
from mauve.ingest.webhooks.endpoint import BODY_BYTES_MAX
from mauve.stores import StoreUnavailableError
from support.billing import (
    NOW,
    NOW_S,
    SECRET_A,
    SECRET_B,
    mapped_for,
    sample,
    sample_bytes,
    signed_a,
    signed_b,
)
from support.clocks import ManualClock
from support.service import eventually, ledger_rows

UNAUTHORIZED = {"ok": False, "error": "unauthorized"}
INVOICE, ORDER = sample_bytes("stripe_invoice_paid_basic"), sample_bytes("polar_order_paid_renewal")
SIGNED = {"biller_a": signed_a, "biller_b": signed_b}
PAID = {"biller_a": INVOICE, "biller_b": ORDER}


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.fixture
def app(parts, organization):
    return create_app(parts, organization.org_id, NewAppBody("An app"))[0]


@pytest.fixture
def connected(parts, app):
    save_secret(parts, app, Environment.LIVE, Provider.BILLER_A, Secret(SECRET_A))
    save_secret(parts, app, Environment.LIVE, Provider.BILLER_B, Secret(SECRET_B))
    return app


@pytest.fixture
def deliver(client, connected):
    def send(body, provider="biller_a", project=connected.public_id, signed=None, **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        signed = SIGNED[provider](body) if signed is None else signed
        sent = {"content-type": "application/json"} | signed | {k.replace("_", "-"): v for k, v in headers.items()}
        sent = {name: value for name, value in sent.items() if value is not None}
        return client.post(f"/v1/webhooks/{provider}/{project}", content=body, headers=sent)

    return send


@pytest.fixture
def payments(settings):
    return lambda: ledger_rows(settings.data, "SELECT id, amount, currency, earned, source FROM payments ORDER BY id")


@pytest.fixture
def totals(settings):
    return lambda: ledger_rows(settings.data, "SELECT earned, currency, total FROM day_totals ORDER BY earned")


@pytest.fixture
def tallies(settings):
    return lambda: dict(ledger_rows(settings.data, "SELECT provider || ' ' || word, count FROM delivery_tallies"))


class TestPayments:
    def test_a_paid_invoice_is_revenue(self, deliver, payments):
        reply = deliver(INVOICE)
        assert (reply.status_code, reply.json()) == (200, {"ok": True, "rows": 1})
        assert payments() == [("stripe:in_1SmpBasic", 4704, "usd", 1, "biller_a")]

    def test_a_paid_order_is_revenue_without_tax(self, deliver, payments):
        assert deliver(ORDER, "biller_b").json() == {"ok": True, "rows": 1}
        assert payments() == [("polar:7f3b2c10-0000-4000-8000-000000000101", 3920, "usd", 1, "biller_b")]

    def test_repeats_under_other_event_ids_count_once(self, deliver, totals):
        for number in range(3):
            event = sample("stripe_invoice_paid_basic") | {"id": f"evt_{number}", "created": NOW_S + number}
            assert deliver(event).json() == {"ok": True, "rows": 1}
        assert totals() == [(1, "usd", "4704")]

    def test_the_first_amount_stands(self, deliver, totals):
        event = sample("stripe_invoice_paid_basic")
        deliver(event)
        event["data"]["object"]["amount_paid"] = 9999
        assert deliver(event).json() == {"ok": True, "rows": 0}
        assert totals() == [(1, "usd", "4704")]

    def test_a_marketplace_is_split_into_fee_and_gross(self, deliver, totals):
        for _ in range(2):
            reply = deliver(sample_bytes("stripe_invoice_paid_marketplace_destination_acacia"))
            assert reply.json() == {"ok": True, "rows": 2}
        assert totals() == [(0, "usd", "20000"), (1, "usd", "2000")]

    def test_a_fee_that_only_a_later_delivery_shows_changes_nothing(self, deliver, totals):
        event = sample("stripe_invoice_paid_basic")
        deliver(event)
        event["data"]["object"]["application_fee_amount"] = 50
        assert deliver(event).json() == {"ok": True, "rows": 0}
        assert totals() == [(1, "usd", "4704")]

    def test_a_fee_that_only_the_first_delivery_shows_stands(self, deliver, totals):
        event = sample("stripe_invoice_paid_basic")
        event["data"]["object"]["application_fee_amount"] = 50
        deliver(event)
        del event["data"]["object"]["application_fee_amount"]
        deliver(event)
        assert totals() == [(0, "usd", "4704"), (1, "usd", "50")]

    def test_a_long_name_is_truncated_and_reported(self, deliver, settings):
        reply = deliver(sample_bytes("stripe_invoice_paid_long_name"))
        assert reply.json() == {"ok": True, "rows": 1, "truncated": ["customer_name"]}
        ((payload, user),) = ledger_rows(settings.data, 'SELECT payload, "user" FROM payments')
        kept = json.loads(payload)
        assert kept["customer_name"].endswith("#truncated#")
        assert kept["truncated"]["customer_name"]["sha256_64"] == "319e66027441c499"
        assert user == sample("stripe_invoice_paid_long_name")["data"]["object"]["customer"]

    def test_the_time_is_clamped_and_the_claim_kept(self, deliver, settings):
        event = sample("stripe_invoice_paid_basic")
        event["data"]["object"]["status_transitions"]["paid_at"] = 5
        deliver(event)
        week = 7 * 86_400_000
        assert ledger_rows(settings.data, "SELECT occurred_at, claimed_at FROM payments") == [(NOW - week, "5000")]

    def test_the_project_counts_as_seen_and_the_payment_is_not_an_event(self, deliver, settings):
        deliver(INVOICE)
        assert ledger_rows(settings.data, "SELECT count(*) FROM first_seen") == [(1,)]
        assert ledger_rows(settings.data, "SELECT count(*) FROM usage") == [(0,)]


class TestConflicts:
    """A different payment under an existing id: the first stands, and the owner sees the conflict."""

    def changed(self, **fields):
        event = sample("stripe_invoice_paid_basic")
        event["data"]["object"] |= fields
        return event

    def test_it_is_listed_as_a_conflict(self, deliver, settings, tallies):
        deliver(INVOICE)
        assert deliver(self.changed(amount_paid=9999)).json() == {"ok": True, "rows": 0}
        noted = ledger_rows(settings.data, "SELECT result, rows FROM deliveries ORDER BY sequence")
        assert noted == [("stored", 1), ("conflict", 0)]
        assert tallies() == {"biller_a stored": 1, "biller_a conflict": 1}

    def test_it_is_counted(self, deliver, core):
        deliver(INVOICE)
        deliver(self.changed(currency="eur"))
        counters = core.ingest.counters
        assert (counters.accepted, counters.duplicates, counters.conflicts) == (1, 0, 1)

    def test_a_repeat_at_another_time_is_not_a_conflict(self, deliver, tallies):
        deliver(INVOICE)
        later = self.changed(status_transitions={"paid_at": NOW_S - 5})
        assert deliver(later).json() == {"ok": True, "rows": 1}
        order = sample("polar_order_paid_renewal")
        for stamp in ("2026-10-26T06:13:20Z", "2026-10-26T06:14:20Z"):
            assert deliver(order | {"timestamp": stamp}, "biller_b").json() == {"ok": True, "rows": 1}
        assert tallies() == {"biller_a stored": 2, "biller_b stored": 2}

    def test_the_stored_part_of_a_split_payment_is_reported(self, deliver, settings):
        deliver(self.changed(application_fee_amount=50))
        assert deliver(self.changed(application_fee_amount=50, amount_paid=9999)).json() == {"ok": True, "rows": 1}
        assert ledger_rows(settings.data, "SELECT result, rows FROM deliveries WHERE sequence = 2") == [("conflict", 1)]


class TestMoney:
    """Amounts are in the minor units of ISO 4217, whatever units a biller uses."""

    @pytest.mark.embedded  # a rule decides; the class above stores
    @pytest.mark.parametrize(
        ("currency", "billed", "minor"),
        [("isk", 500_000, 5000), ("ugx", 500_000, 5000), ("mga", 5000, 500_000), ("jpy", 5000, 5000), ("eur", 50, 50)],
    )
    def test_payments_of_both_billers_are_converted(self, deliver, totals, currency, billed, minor):
        invoice, order = sample("stripe_invoice_paid_basic"), sample("polar_order_paid_renewal")
        invoice["data"]["object"] |= {"amount_paid": billed, "currency": currency}
        order["data"] |= {"net_amount": billed, "currency": currency}
        deliver(invoice)
        deliver(order, "biller_b")
        assert totals() == [(1, currency, str(2 * minor))]

    def test_a_split_and_its_tax_are_converted(self, deliver, totals, settings):
        event = sample("stripe_invoice_paid_basic")
        event["data"]["object"] |= {"amount_paid": 500_000, "currency": "isk", "application_fee_amount": 50_000}
        event["data"]["object"]["total_taxes"] = [{"amount": 9_650}]
        assert deliver(event).json()["rows"] == 2
        assert totals() == [(0, "isk", "5000"), (1, "isk", "500")]
        ((payload,),) = ledger_rows(settings.data, "SELECT payload FROM payments WHERE earned")
        assert json.loads(payload)["tax"] == "193/2", "kept exactly, although it is not a whole number"

    def test_mrr_is_converted_before_it_is_rounded(self, deliver, settings):
        price = {"unit_amount": 500_050, "recurring": {"interval": "year"}}  # 5,000.50 ISK are 416.708 a month
        data = {"id": "sub_1", "status": "active", "currency": "isk", "items": {"data": [{"price": price}]}}
        deliver({"id": "evt_1", "type": "customer.subscription.updated", "created": NOW_S, "data": {"object": data}})
        other = {"id": "1", "status": "active", "currency": "mga", "amount": 7, "recurring_interval": "year"}
        deliver({"type": "subscription.updated", "timestamp": "2026-10-26T06:13:20Z", "data": other}, "biller_b")
        rows = ledger_rows(settings.data, "SELECT currency, mrr FROM subscriptions ORDER BY currency")
        assert rows == [("isk", 417), ("mga", 58)]

    @pytest.mark.parametrize("field", ["amount_paid", "application_fee_amount"])
    def test_fractions_of_a_minor_unit_are_not_booked_and_reported(self, deliver, payments, tallies, field):
        event = sample("stripe_invoice_paid_basic")
        event["data"]["object"] |= {"amount_paid": 500_000, "currency": "isk", field: 505_050}
        assert deliver(event).json() == {"ok": True, "rows": 0}
        assert payments() == []
        assert tallies() == {"biller_a unusable": 1, "biller_a amount_unusable": 1}

    @pytest.mark.embedded  # a rule decides; the class above stores
    @pytest.mark.parametrize("currency", ["bgn", "hrk", "ang", "DEM"])
    def test_withdrawn_currencies_are_money(self, deliver, totals, currency):
        event = sample("stripe_invoice_paid_basic")
        event["data"]["object"]["currency"] = currency
        assert deliver(event).json() == {"ok": True, "rows": 1}
        assert totals() == [(1, currency.lower(), "4704")]


class TestSubscriptions:
    ORDERED = (
        "stripe_subscription_order_2_updated_active",
        "stripe_subscription_order_1_created_incomplete",
        "stripe_subscription_order_3_tie_trial_will_end",
    )

    def test_late_and_tied_deliveries_do_not_replace_newer_ones(self, deliver, settings):
        for name in self.ORDERED * 2:
            assert deliver(sample_bytes(name)).json() == {"ok": True, "rows": 1}
        rows = ledger_rows(settings.data, "SELECT id, status, mrr, currency FROM subscriptions")
        assert rows == [("stripe:sub_1SmpOo", "active", 4900, "usd")]
        assert ledger_rows(settings.data, "SELECT count(*) FROM subscription_versions") == [(3,)]

    def test_both_billers_are_kept_apart(self, deliver, settings):
        deliver(sample_bytes("stripe_subscription_annual_qty3"))
        deliver(sample_bytes("polar_subscription_annual_seats3"), "biller_b")
        rows = ledger_rows(settings.data, "SELECT id, mrr FROM subscriptions ORDER BY id")
        assert [mrr for _, mrr in rows] == [3000, 3000]
        assert [id_.partition(":")[0] for id_, _ in rows] == ["polar", "stripe"]


class TestAcknowledged:
    @pytest.mark.embedded  # a rule decides; other tests count deliveries
    @pytest.mark.parametrize(
        ("provider", "body", "words"),
        [
            ("biller_a", sample_bytes("stripe_unmapped_invoice_payment_succeeded"), {"ignored"}),
            ("biller_a", sample_bytes("stripe_invoice_paid_zero_trial"), {"ignored", "zero_amount"}),
            ("biller_a", sample_bytes("stripe_thin_v1_invoice_paid"), {"ignored", "thin_event"}),
            ("biller_b", sample_bytes("polar_order_refunded_unmapped"), {"ignored"}),
            ("biller_b", sample_bytes("polar_order_paid_zero"), {"ignored", "zero_amount"}),
            ("biller_a", b"", {"unusable", "not_an_event"}),
            ("biller_a", b"not JSON", {"unusable", "not_an_event"}),
            ("biller_b", b"[1]", {"unusable", "not_an_event"}),
            ("biller_b", b"[" * 100_000, {"unusable", "not_an_event"}),
            ("biller_a", b'{"type": "invoice.paid"}', {"unusable", "object_unusable"}),
            ("biller_b", b'{"type": "order.paid", "data": {"net_amount": 1.5}}', {"unusable", "amount_unusable"}),
        ],
    )
    def test_a_delivery_that_makes_no_row_is_acknowledged_and_counted(
        self, deliver, tallies, payments, provider, body, words
    ):
        reply = deliver(body, provider)
        assert (reply.status_code, reply.json()) == (200, {"ok": True, "rows": 0})
        assert tallies() == {f"{provider} {word}": 1 for word in words}
        assert payments() == []

    def test_a_lone_surrogate_does_not_cost_a_payment(self, deliver, payments):
        body = INVOICE.replace(b'"Ada Example"', rb'"Ada \ud83d"')
        assert deliver(body).json() == {"ok": True, "rows": 1}
        assert len(payments()) == 1

    @pytest.mark.parametrize(
        "flaw", [b"\xff", b"\xed\xa0\x80", b"\xc3"], ids=["no character", "half of one", "cut off"]
    )
    def test_invalid_utf_8_does_not_cost_a_payment(self, deliver, payments, flaw):
        body = INVOICE.replace(b'"Ada Example"', b'"Ada ' + flaw + b'"')
        assert deliver(body).json() == {"ok": True, "rows": 1}
        assert len(payments()) == 1

    def test_deliveries_are_listed_for_the_owner(self, deliver, connected, settings):
        deliver(INVOICE)
        deliver(sample_bytes("stripe_invoice_paid_testmode"))
        rows = ledger_rows(settings.data, "SELECT project, type, result, rows, warnings FROM deliveries")
        assert rows == [
            (connected.public_id, "invoice.paid", "stored", 1, ""),
            (connected.public_id, "invoice.paid", "ignored", 0, "plane_mismatch"),
        ]


class TestOtherEnvironment:
    """A delivery whose `livemode` disagrees with the address that verified it."""

    @pytest.mark.parametrize("name", ["stripe_invoice_paid_testmode", "stripe_subscription_testmode"])
    def test_test_money_at_the_live_address_is_acknowledged_and_not_booked(self, deliver, totals, settings, name):
        deliver(INVOICE)
        before = totals()
        reply = deliver(sample_bytes(name))
        assert (reply.status_code, reply.json()) == (200, {"ok": True, "rows": 0})
        assert totals() == before
        assert ledger_rows(settings.data, "SELECT count(*) FROM subscription_versions") == [(0,)]

    @pytest.mark.parametrize("name", ["stripe_invoice_paid_basic", "stripe_subscription_annual_qty3"])
    def test_live_money_at_the_test_address_is_acknowledged_and_not_booked(
        self, deliver, connected, parts, payments, settings, name
    ):
        project = save_secret(parts, connected, Environment.TEST, Provider.BILLER_A, Secret(SECRET_A))
        assert deliver(sample_bytes(name), project=project).json() == {"ok": True, "rows": 0}
        assert payments() == []
        assert ledger_rows(settings.data, "SELECT count(*) FROM subscription_versions") == [(0,)]
        recorded = ledger_rows(settings.data, "SELECT project, result, rows, warnings FROM deliveries")
        assert recorded == [(project, "ignored", 0, "plane_mismatch")]

    def test_a_biller_without_the_flag_is_booked_where_it_arrived(self, deliver, connected, parts, payments):
        project = save_secret(parts, connected, Environment.TEST, Provider.BILLER_B, Secret(SECRET_B))
        assert deliver(ORDER, "biller_b", project=project).json() == {"ok": True, "rows": 1}
        assert len(payments()) == 1

    def test_an_invoice_sent_again_to_the_right_address_is_booked(self, deliver, connected, parts, totals):
        project = save_secret(parts, connected, Environment.TEST, Provider.BILLER_A, Secret(SECRET_A))
        body = sample_bytes("stripe_invoice_paid_testmode")
        assert deliver(body).json() == {"ok": True, "rows": 0}
        assert deliver(body, project=project).json() == {"ok": True, "rows": 1}
        assert totals() == [(1, "usd", "4900")]


class TestSuspended:
    @pytest.fixture
    def suspended(self, parts, organization, keyring, connected):
        operator.suspend(parts, organization.org_id)
        keyring.refresh()

    def test_a_delivery_is_acknowledged_and_not_stored(self, deliver, suspended, payments, tallies):
        reply = deliver(INVOICE)
        expected = {"ok": True, "rows": 0, "suspended": True, "code": "ingest_suspended"}
        assert (reply.status_code, reply.json()) == (200, expected)
        assert payments() == []
        assert tallies() == {"biller_a suspended": 1}

    def test_its_signature_is_still_verified(self, deliver, suspended):
        assert deliver(INVOICE, signed={"stripe-signature": "nonsense"}).status_code == 401

    def test_deliveries_are_stored_again_after_resuming(
        self, deliver, suspended, parts, organization, keyring, payments
    ):
        deliver(INVOICE)
        operator.resume(parts, organization.org_id)
        keyring.refresh()
        assert deliver(INVOICE).json() == {"ok": True, "rows": 1}
        assert len(payments()) == 1


class TestRefusals:
    """In the order in which a delivery can be refused."""

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    def test_405(self, client, connected, method):
        reply = client.request(method, f"/v1/webhooks/biller_a/{connected.public_id}")
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")

    def test_404_has_one_body(self, client, deliver, connected, parts, organization):
        other = create_app(parts, organization.org_id, NewAppBody("No secrets"))[0]
        paths = [
            f"biller_c/{connected.public_id}",
            f"BILLER_A/{connected.public_id}",
            f"stripe/{connected.public_id}",
            "biller_a/proj_00000000000000000000",
            f"biller_a/{connected.app_id}",
            f"biller_a/{other.public_id}",
            f"biller_a/{connected.public_id}/",
            f"biller_a/{connected.public_id}/more",
            f"biller_a%2F{connected.public_id}",
            "biller_a/",
            "biller_a",
            "biller_a/é",
            "",
        ]
        replies = [client.post(f"/v1/webhooks/{path}", content=INVOICE, headers=signed_a(INVOICE)) for path in paths]
        assert {reply.status_code for reply in replies} == {404}
        assert {reply.json()["error"] for reply in replies} == {
            "no such webhook address, or no signing secret is saved for it: see the app's Webhooks page for both"
        }

    def test_404_comes_before_everything_else(self, client, connected):
        reply = client.post(f"/v1/webhooks/biller_a/{connected.app_id}", content=b"x" * (BODY_BYTES_MAX + 1))
        assert reply.status_code == 404

    @pytest.mark.embedded  # refused before an engine is asked
    @pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
    def test_415_comes_before_the_size_and_the_signature(self, deliver, content_type):
        reply = deliver(b"x" * (BODY_BYTES_MAX + 1), signed={}, content_type=content_type)
        assert (reply.status_code, reply.json()["ok"]) == (415, False)

    @pytest.mark.embedded  # refused before an engine is asked
    def test_415_for_a_compressed_body(self, deliver):
        assert deliver(INVOICE, content_encoding="gzip").status_code == 415

    @pytest.mark.embedded  # refused before an engine is asked
    def test_413_comes_before_the_signature(self, deliver):
        reply = deliver(b"x" * (BODY_BYTES_MAX + 1), signed={})
        assert (reply.status_code, reply.json()["ok"]) == (413, False)

    def test_a_delivery_of_four_megabytes_is_accepted(self, deliver):
        padded = INVOICE + b" " * (BODY_BYTES_MAX - len(INVOICE))
        assert deliver(padded, content_type="application/json; charset=utf-8").json() == {"ok": True, "rows": 1}

    def test_401_has_one_body_for_every_reason(self, deliver, connected, tallies, payments):
        attempts = [
            deliver(INVOICE, signed={}),
            deliver(INVOICE, signed={"stripe-signature": "é".encode("latin-1")}),
            deliver(INVOICE, signed={"stripe-signature": "x" * 20_000}),
            deliver(INVOICE, signed=signed_a(INVOICE, at=NOW_S - 301)),
            deliver(INVOICE, signed=signed_a(INVOICE, at=NOW_S + 301)),
            deliver(INVOICE, signed=signed_a(INVOICE, secret=SECRET_B)),
            deliver(INVOICE, signed=signed_a(INVOICE + b" ")),
            deliver(INVOICE, signed=signed_b(INVOICE)),
            deliver(INVOICE, signed={}, authorization=f"Bearer {SECRET_A}"),
        ]
        assert {reply.status_code for reply in attempts} == {401}
        assert {reply.content for reply in attempts} == {json.dumps(UNAUTHORIZED, separators=(",", ":")).encode()}
        assert payments() == []
        expected = {
            "biller_a signature_missing": 3,
            "biller_a signature_malformed": 2,
            "biller_a timestamp_outside_window": 2,
            "biller_a signature_mismatch": 2,
        }
        assert eventually(lambda: tallies() == expected)

    @pytest.mark.embedded  # refused before an engine is asked
    def test_a_header_sent_twice_is_401(self, client, connected):
        value = signed_a(INVOICE)["stripe-signature"]
        headers = [("content-type", "application/json"), ("stripe-signature", value), ("stripe-signature", value)]
        reply = client.post(f"/v1/webhooks/biller_a/{connected.public_id}", content=INVOICE, headers=headers)
        assert (reply.status_code, reply.json()) == (401, UNAUTHORIZED)

    def test_refusals_leave_one_row_per_word_however_many_there_are(self, deliver, settings):
        for _ in range(50):
            deliver(INVOICE, signed={"stripe-signature": "nonsense"})

        def counted():
            found = dict(ledger_rows(settings.data, "SELECT word, count FROM delivery_tallies"))
            return found == {"signature_malformed": 50}

        assert eventually(counted)
        assert ledger_rows(settings.data, "SELECT count(*) FROM deliveries") == [(0,)]

    def test_a_secret_of_another_project_is_not_accepted(self, deliver, parts, organization):
        other = create_app(parts, organization.org_id, NewAppBody("Another"))[0]
        save_secret(parts, other, Environment.LIVE, Provider.BILLER_A, Secret("another secret"))
        assert deliver(INVOICE, project=other.public_id).status_code == 401

    def test_503_if_it_could_not_be_made_durable(self, deliver, core, monkeypatch):
        async def fail(entry, org_id):
            raise StoreUnavailableError("disk I/O error")

        monkeypatch.setattr(core.ingest.ledger, "record", fail)
        reply = deliver(INVOICE)
        assert (reply.status_code, reply.json()["ok"]) == (503, False)
        assert deliver(sample_bytes("stripe_subscription_annual_qty3")).status_code == 503
        unmapped = deliver(sample_bytes("stripe_unmapped_invoice_payment_succeeded"))
        assert unmapped.status_code == 200, "there was nothing to make durable"


class TestSecrets:
    def test_a_new_secret_works_at_once_and_the_old_one_stops(self, deliver, client, app, parts):
        for secret in (SECRET_A, "the second", "the third"):
            save_secret(parts, app, Environment.LIVE, Provider.BILLER_A, Secret(secret))
            # Extra refreshes are limited, even during a flood.
            assert eventually(lambda given=secret: deliver(INVOICE, signed=signed_a(INVOICE, given)).status_code == 200)
        assert deliver(INVOICE).status_code == 401

    def test_the_address_exists_once_a_secret_is_saved(self, client, app, parts):
        path, headers = f"/v1/webhooks/biller_b/{app.public_id}", {"content-type": "application/json"}
        assert client.post(path, content=ORDER, headers=headers | signed_b(ORDER)).status_code == 404
        save_secret(parts, app, Environment.LIVE, Provider.BILLER_B, Secret(SECRET_B))
        assert eventually(lambda: client.post(path, content=ORDER, headers=headers | signed_b(ORDER)).is_success)

    def test_test_and_live_never_mix(self, deliver, connected, parts, settings):
        project = save_secret(parts, connected, Environment.TEST, Provider.BILLER_A, Secret("for tests"))
        body = sample_bytes("stripe_invoice_paid_testmode")
        assert deliver(body, project=project).status_code == 401, "the live secret does not work for test"
        assert deliver(body, signed=signed_a(body, "for tests")).status_code == 401
        assert deliver(body, project=project, signed=signed_a(body, "for tests")).json() == {"ok": True, "rows": 1}
        assert ledger_rows(settings.data, "SELECT project FROM payments") == [(project,)]
        assert ledger_rows(settings.data, "SELECT project, warnings FROM deliveries") == [(project, "")]


def test_a_delivery_stores_what_the_rules_map(deliver, settings, connected):
    name = "stripe_invoice_paid_basic"
    deliver(sample_bytes(name))
    (expected,) = mapped_for(Provider.BILLER_A, sample(name), project=connected.public_id).entry.payments
    rows = ledger_rows(settings.data, 'SELECT digest, "user", occurred_at, received_at, payload FROM payments')
    assert rows == [(expected.digest, expected.user, expected.occurred_at, NOW, expected.payload)]
