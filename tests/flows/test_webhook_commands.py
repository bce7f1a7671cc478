"""`mauve webhooks list` and `mauve webhooks replay`, as other programs call them."""

import json
import time

import pytest

from mauve.cli.options import UsageError
from mauve.cli.webhooks import RecorderOfActiveApp
from mauve.control import operator
from mauve.control.apps import archive_app, create_app
from mauve.control.bodies import NewAppBody
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.imports.files import lines_of
from mauve.ingest.webhooks.endpoint import BODY_BYTES_MAX
from mauve.ingest.webhooks.replay import DryRun
from mauve.stores.deliveries import Tally
from mauve.stores.ledger import Entry
from mauve.wiring.databases import open_ledger_writer
from support.billing import NOW, SECRET_A, mapped_for, sample
from support.service import ledger_rows, mauve, mauve_json

A = Provider.BILLER_A


@pytest.fixture
def data(settings):
    return settings.data


@pytest.fixture
def app(parts, organization):
    return create_app(parts, organization.org_id, NewAppBody("An app"))[0]


def exported(path, *events):
    lines = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return str(path)


def invoices(count):
    for number in range(count):
        event = sample("stripe_invoice_paid_basic")
        event["data"]["object"] |= {"id": f"in_{number}", "amount_paid": number + 1}
        event["data"]["object"]["status_transitions"]["paid_at"] = 1_500_000_000 + number * 86_400
        yield event


class TestReplay:
    @pytest.fixture
    def replay(self, data, app, tmp_path):
        def run(*events, provider="biller_a", options=()):
            file = exported(tmp_path / "events.jsonl", *events)
            return mauve_json(data, "webhooks", "replay", "--app", app.app_id, "--provider", provider, *options, file)

        return run

    def test_history_counts_on_the_days_it_happened(self, replay, data, app):
        done = replay(*invoices(600), b"", sample("stripe_subscription_annual_qty3"))
        assert (done["events"], done["payments"], done["payments_new"], done["subscriptions"]) == (601, 600, 600, 1)
        assert done["revenue"] == {"usd": 600 * 601 // 2}
        days = ledger_rows(data, "SELECT day, total FROM day_totals ORDER BY day")
        assert (len(days), days[0], days[-1]) == (600, ("2017-07-14", "1"), ("2019-03-05", "600"))
        assert ledger_rows(data, "SELECT DISTINCT project, source FROM payments") == [(app.public_id, "biller_a")]
        assert ledger_rows(data, "SELECT count(*) FROM usage") == [(0,)], "history is not usage"

    def test_a_second_replay_changes_nothing(self, replay, data):
        events = [*invoices(3), sample("stripe_subscription_annual_qty3")]
        replay(*events)
        queries = ["SELECT * FROM payments", "SELECT * FROM day_totals", "SELECT * FROM subscription_versions"]
        before = [ledger_rows(data, query) for query in queries]
        done = replay(*reversed(events), *events)
        assert (done["payments"], done["payments_new"], done["revenue"]) == (6, 0, {})
        assert [ledger_rows(data, query) for query in queries] == before

    def test_a_replay_stores_customer_and_plan_and_does_not_bring_an_erased_customer_back(self, replay, data, app):
        event = sample("stripe_subscription_annual_qty3")
        event["data"]["object"]["customer"] = "cus_ann"
        event["data"]["object"]["items"]["data"][0]["price"]["nickname"] = "Pro"
        replay(event)
        tables = ("subscriptions", "subscription_versions")
        for table in tables:
            assert ledger_rows(data, f"SELECT customer, plan FROM {table}") == [("cus_ann", "Pro")]
        assert mauve_json(data, "erase-user", "--app", app.app_id, "cus_ann", "--yes")["subscription_versions"] == 1
        replay(event)
        for table in tables:
            assert ledger_rows(data, f"SELECT customer, plan FROM {table}") == [(None, "Pro")]

    def test_a_replay_maps_events_like_deliveries(self, replay, data, app):
        event = sample("stripe_invoice_paid_marketplace_destination_acacia")
        done = replay(event)
        assert (done["payments"], done["revenue"], done["volume"]) == (2, {"usd": 2000}, {"usd": 20000})
        expected = mapped_for(A, event, project=app.public_id).entry.payments
        rows = ledger_rows(data, "SELECT id, digest, amount, payload FROM payments ORDER BY id")
        assert rows == [(each.id, each.digest, each.amount, each.payload) for each in expected]

    def test_an_archived_app_is_refused(self, replay, data, app):
        mauve_json(data, "app", "archive", app.app_id)
        with pytest.raises(AssertionError, match="is archived: restore it"):
            replay(*invoices(1))
        assert ledger_rows(data, "SELECT * FROM payments") == []

    def test_a_replay_stops_as_soon_as_the_app_is_archived(self, parts, app):
        recorder = RecorderOfActiveApp(DryRun(), parts, app.app_id)
        assert recorder.record([Entry([])]) == [[]]
        archive_app(parts, app)
        with pytest.raises(UsageError, match="is archived"):
            recorder.record([Entry([])])

    def test_a_dry_run_summarizes_and_records_nothing(self, replay, data):
        done = replay(*invoices(2), *invoices(2), options=("--dry-run",))
        assert (done["dry_run"], done["payments"], done["payments_new"], done["revenue"]) == (True, 4, 2, {"usd": 3})
        assert ledger_rows(data, "SELECT count(*) FROM payments") == [(0,)]

    def test_unusable_events_are_counted_with_their_line_numbers(self, replay):
        thin, unmapped = sample("stripe_thin_v1_invoice_paid"), sample("stripe_unmapped_invoice_payment_succeeded")
        done = replay(thin, b"not JSON", b"", *invoices(1), unmapped, b'{"type": "invoice.paid"}')
        assert (done["ignored"], done["unusable"], done["unusable_lines"]) == (2, 2, [2, 6])
        assert done["warnings"] == {"thin_event": 1, "not_an_event": 1, "object_unusable": 1}
        assert done["payments_new"] == 1

    def test_biller_b_in_the_test_environment(self, replay, data, app, tmp_path):
        secret = ("webhooks", "secret", "--app", app.app_id, "--provider", "biller_b", "--test")
        project = mauve_json(data, *secret, stdin="whsec_for_tests")["project"]
        done = replay(sample("polar_order_paid_renewal"), provider="biller_b", options=("--test",))
        assert done["revenue"] == {"usd": 3920}
        assert ledger_rows(data, "SELECT project FROM payments") == [(project,)]

    def test_events_of_the_other_environment_are_counted_and_not_recorded(self, replay, data, app, tmp_path):
        secret = ("webhooks", "secret", "--app", app.app_id, "--provider", "biller_a", "--test")
        project = mauve_json(data, *secret, stdin=SECRET_A)["project"]
        events = [*invoices(2), sample("stripe_invoice_paid_testmode"), sample("stripe_subscription_testmode")]
        for options, revenue, subscriptions in (((), {"usd": 3}, 0), (("--test",), {"usd": 4900}, 1)):
            done = replay(*events, options=options)
            assert (done["misdirected"], done["ignored"], done["warnings"]) == (2, 2, {"plane_mismatch": 2})
            assert (done["revenue"], done["subscriptions"]) == (revenue, subscriptions)
        counted = ledger_rows(data, "SELECT project, count(*) FROM payments GROUP BY project ORDER BY count(*)")
        assert counted == [(project, 1), (app.public_id, 2)]
        command = ("webhooks", "replay", "--app", app.app_id, "--provider", "biller_a")
        file = str(tmp_path / "events.jsonl")
        assert "2 test-mode events were not recorded: replay them with --test\n" in mauve(data, *command, file).stdout
        printed = mauve(data, *command, "--test", file).stdout
        assert "2 live-mode events were not recorded: replay them without --test\n" in printed

    def test_a_secret_that_does_not_look_like_one_is_saved_with_a_warning(self, data, app):
        secret = ("webhooks", "secret", "--app", app.app_id, "--provider", "biller_a")
        doubted, good = (
            mauve(data, *secret, stdin="sk_live_canary"),
            mauve(data, *secret, stdin="whsec_canary_0123456789"),
        )
        assert (doubted.returncode, good.returncode) == (0, 0)
        assert doubted.stderr.startswith("warning: this does not look like a signing secret of Stripe")
        assert "canary" not in doubted.stderr
        assert good.stderr == ""

    def test_without_json_a_summary_is_printed(self, data, app, tmp_path):
        file = exported(tmp_path / "events.jsonl", *invoices(2), b"x")
        done = mauve(data, "webhooks", "replay", "--app", app.app_id, "--provider", "biller_a", file)
        assert (done.returncode, done.stderr.partition(",")[0]) == (0, "replaying")
        assert done.stdout.splitlines() == [
            "3 events: 2 payments (2 new), 0 subscription versions, 0 ignored, 1 unusable",
            "new revenue: 3 minor units of usd",
            "not_an_event: 1",
            "unusable lines begin with 3",
        ]

    def test_usage_errors_are_one_sentence(self, data, app, parts, organization, tmp_path):
        file = exported(tmp_path / "events.jsonl", *invoices(1))
        known = ("webhooks", "replay", "--app", app.app_id, "--provider", "biller_a")
        wrong = [
            (*known, str(tmp_path / "missing")),
            (*known, str(tmp_path)),
            (*known, "--test", file),
            ("webhooks", "replay", "--app", "app_missing", "--provider", "biller_a", file),
            ("webhooks", "replay", "--app", app.app_id, "--provider", "biller_c", file),
        ]
        operator.suspend(parts, organization.org_id)
        for arguments in (*wrong, (*known, file)):
            done = mauve(data, *arguments)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert ledger_rows(data, "SELECT count(*) FROM payments") == [(0,)]


def test_a_line_longer_than_any_delivery_is_one_unusable_line(tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"{}\n" + b"[" * (2 * BODY_BYTES_MAX + 5) + b"\n{}")
    with path.open("rb") as file:
        assert [len(line) for line in lines_of(file)] == [2, BODY_BYTES_MAX, 2]


class TestList:
    def test_deliveries_and_counts_of_both_environments_are_shown(self, data, settings, app, parts):
        secret = ("webhooks", "secret", "--app", app.app_id, "--provider", "biller_a", "--test")
        test_project = mauve_json(data, *secret, stdin=SECRET_A)["project"]
        entries = [
            mapped_for(A, sample("stripe_invoice_paid_testmode"), app.public_id).entry,
            mapped_for(
                A, sample("stripe_invoice_paid_testmode"), test_project, NOW + 1, environment=Environment.TEST
            ).entry,
            Entry(tallies=[Tally(app.public_id, "biller_b", "signature_mismatch", 7, NOW)]),
        ]
        with open_ledger_writer(settings) as writer:
            writer.record(entries)
        listed = mauve_json(data, "webhooks", "list", "--app", app.app_id)
        assert [(each["plane"], each["warnings"]) for each in listed["deliveries"]] == [
            ("test", []),
            ("live", ["plane_mismatch"]),
        ]
        assert listed["deliveries"][0] == {
            "plane": "test",
            "project": test_project,
            "provider": "biller_a",
            "at": NOW + 1,
            "type": "invoice.paid",
            "result": "stored",
            "rows": 1,
            "warnings": [],
        }
        counted = {(each["plane"], each["provider"], each["word"]): each["count"] for each in listed["counts"]}
        assert counted == {
            ("live", "biller_a", "ignored"): 1,
            ("live", "biller_a", "plane_mismatch"): 1,
            ("live", "biller_b", "signature_mismatch"): 7,
            ("test", "biller_a", "stored"): 1,
        }
        shown = mauve(data, "webhooks", "list", "--app", app.app_id).stdout
        assert "signature_mismatch" in shown
        assert time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(NOW // 1000)) in shown

    def test_an_app_without_deliveries_says_so(self, data, app):
        assert mauve_json(data, "webhooks", "list", "--app", app.app_id) == {"counts": [], "deliveries": []}
        assert mauve(data, "webhooks", "list", "--app", app.app_id).stdout == "no deliveries yet\n"

    def test_an_unknown_app_is_a_usage_error(self, data, app):
        assert mauve(data, "webhooks", "list", "--app", "app_missing").returncode == 2


@pytest.mark.embedded  # only a help text
@pytest.mark.parametrize("command", ["secret", "replay"])
def test_help_names_the_billers(data, command):
    text = " ".join(mauve(data, "webhooks", command, "--help").stdout.split())
    assert "Stripe (biller_a) or Polar (biller_b)" in text


def test_the_list_names_the_billers(data, settings, app):
    entry = mapped_for(A, sample("stripe_invoice_paid_basic"), project=app.public_id).entry
    with open_ledger_writer(settings) as ledger:
        ledger.record([entry])
    listed = mauve(data, "webhooks", "list", "--app", app.app_id).stdout
    assert listed.count("Stripe") == 2


def test_a_conflicting_replayed_payment_is_reported(data, app, tmp_path):
    event, other = sample("stripe_invoice_paid_basic"), sample("stripe_invoice_paid_basic")
    other["data"]["object"]["amount_paid"] = 9999
    file = exported(tmp_path / "events.jsonl", event, other, event)
    command = ["webhooks", "replay", "--app", app.app_id, "--provider", "biller_a"]
    for options in (["--dry-run"], []):
        done = mauve_json(data, *command, *options, file)
        assert (done["payments"], done["payments_new"], done["conflicts"]) == (2, 1, 1)
        assert done["revenue"] == {"usd": 4704}
    assert "2 payments (0 new)" in (printed := mauve(data, *command, file).stdout)
    assert "1 payments conflict with an earlier one with the same id: the first one wins" in printed
