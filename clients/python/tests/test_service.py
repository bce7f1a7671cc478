"""Against the real service: counted exactly, whatever happens in between."""

import itertools
import os
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.service import ledger_rows, running, token_for, until_loaded

from mauve_metrics import Control, InsufficientScope, Mauve, Metrics, NotFound, Unauthorized
from proxy import FAULTS, HastyClock, proxy_before
from stub import PATIENCE_S, eventually, total

SOURCES = str(Path(__file__).parents[1] / "src")


@pytest.fixture(scope="module")
def mauve_service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("service") / "data", "--workers", "1") as service:
        yield service


@pytest.fixture(scope="module")
def control(mauve_service):
    return Control(token_for(mauve_service.data), url=mauve_service.url, timeout=PATIENCE_S)


def live_key(control, service, name):
    """Create an app, and return it once its key works."""
    app = control.create_app(name)
    eventually(lambda: all(key.mirrored_at for key in control.keys(app.app_id)))
    return app


def counts_of(metrics):
    return {row.name: row.count for row in metrics.event_names().rows}


schedules = st.lists(st.sampled_from(FAULTS), max_size=12)
bursts = st.lists(st.tuples(st.integers(1, 25), st.booleans()), min_size=1, max_size=5)


def test_whatever_happens_in_between_the_service_counts_exactly_what_was_accepted(mauve_service, control, rounds):
    app = live_key(control, mauve_service, "Random schedules")
    expected_counts, expected_payments, expected_mrr = {}, set(), 0
    numbers = itertools.count()

    @settings(max_examples=rounds)
    @given(schedules, bursts)
    def deliver(schedule, work):
        nonlocal expected_mrr
        name, fates = f"schedule {next(numbers)}", []
        options = {"flush_interval": 1, "timeout": 1.0, "batch_size": 20, "_clock": HastyClock()}
        proxy.schedule = list(schedule)
        with Mauve(
            app.sk_key,
            url=proxy.url,
            on_drop=lambda item, reason: fates.append(item),
            on_reject=lambda item, reason: fates.append(item),
            **options,
        ) as mauve:
            calls, paid, subscribed = 0, set(), set()
            for count, has_money in work:
                for _ in range(count):
                    mauve.track(name, user=f"user {calls % 7}")
                    calls += 1
                if has_money:
                    for amount in (calls, calls + 1):  # The second conflicts with the first.
                        mauve.payment(id=f"{name} {count}", amount=amount, currency="eur")
                        paid.add((f"{name} {count}", amount))
                    mauve.subscription(id=f"{name} {calls}", status="active", mrr=1, currency="eur")
                    subscribed.add(f"{name} {calls}")
                    calls += 3
                time.sleep(0.01)
            assert mauve.flush(PATIENCE_S * HastyClock.speed)
            stats = mauve.stats
        assert (total(stats), stats.queued, stats.expired) == (calls, 0, 0)
        assert stats.rejected + stats.dropped == len(fates)
        tracked = calls - len(paid) - len(subscribed)
        expected_counts[name] = tracked - sum(item.get("name") == name for item in fates)
        paid -= {(item["id"], item["props"]["amount"]) for item in fates if item.get("name") == "payment"}
        expected_payments.update(paid)
        expected_mrr += len(subscribed) - sum(item.get("type") == "subscription" for item in fates)

    with proxy_before(mauve_service.ingest_url) as proxy:
        deliver()
    until_loaded(mauve_service)
    metrics = Metrics(app.sk_key, url=mauve_service.url)
    assert counts_of(metrics) == {name: count for name, count in expected_counts.items() if count}
    stored = f"SELECT id, amount FROM payments WHERE project = '{app.public_id}'"
    assert set(ledger_rows(mauve_service.data, stored)) == expected_payments
    assert sum(row.revenue for row in metrics.revenue().rows) == sum(amount for _, amount in expected_payments)
    assert sum(row.mrr for row in metrics.mrr().rows) == expected_mrr


@pytest.fixture(scope="module")
def rounds():
    return int(os.environ.get("MAUVE_CLIENT_SCHEDULES", "20"))


SEND_FOREVER = """
import sys, time
from mauve_metrics import Mauve
mauve = Mauve(sys.argv[1], url=sys.argv[2], spool=sys.argv[3], flush_interval=0.05, batch_size=50, timeout=1)
number = 0
while True:
    for _ in range(20):
        mauve.track(sys.argv[4])
        number += 1
        print(number, flush=True)
    time.sleep(0.01)
"""


def test_processes_that_are_killed_while_they_send_lose_nothing_and_count_nothing_twice(
    mauve_service, control, tmp_path
):
    app = live_key(control, mauve_service, "Killed senders")
    expected = {}
    with proxy_before(mauve_service.ingest_url) as proxy:
        for life in range(4):
            proxy.schedule = ["cut after", "pass", "delay", "silence", 503] * 5
            name = f"life {life}"
            with (tmp_path / name).open("wb") as said:
                process = subprocess.Popen(
                    [sys.executable, "-c", SEND_FOREVER, app.sk_key, proxy.url, str(tmp_path / "spool"), name],
                    stdout=said,
                    env={**os.environ, "PYTHONPATH": SOURCES},
                )
            eventually(lambda name=name, life=life: (tmp_path / name).read_bytes().count(b"\n") > 200 * (life + 1))
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_S)
            expected[name] = (tmp_path / name).read_bytes().count(b"\n")
        proxy.schedule = []
        with Mauve(app.sk_key, url=proxy.url, spool=tmp_path / "spool") as last:
            last.track("last")
            eventually(lambda: not list((tmp_path / "spool").rglob("*.items")))  # They are taken over one by one.
            assert last.flush(PATIENCE_S)
    assert list((tmp_path / "spool").rglob("*.items")) == []
    until_loaded(mauve_service)
    counts = counts_of(Metrics(app.sk_key, url=mauve_service.url))
    for name, count in expected.items():
        assert counts[name] - count in {0, 1}, "one call may have been killed before it printed"


def test_metrics_are_read_and_apps_are_managed(mauve_service, control):
    app = live_key(control, mauve_service, "Reading")
    with Mauve(app.sk_key, url=mauve_service.ingest_url) as mauve:
        mauve.track("opened", user="ann")
        mauve.signup(user="bob")
        mauve.payment(id="p", amount=1999, currency="eur")
        mauve.payment(id="v", amount=500, currency="usd", earned=False)
        mauve.subscription(id="s", status="active", mrr=700, currency="eur")
        assert mauve.flush(PATIENCE_S)
    assert mauve.stats.accepted == 5
    until_loaded(mauve_service)
    metrics = Metrics(token_with_metrics(control), url=mauve_service.url, project=app.public_id)
    today = metrics.mau().date_to
    assert metrics.mau().rows[0].mau == 2
    assert [(row.day, row.dau) for row in metrics.dau().rows] == [(today, 1)]
    assert metrics.signups(today, today).rows[0].signups == 1
    assert metrics.signups_daily().rows[0].day == today
    assert [(row.currency, row.revenue) for row in metrics.revenue().rows] == [("eur", 1999)]
    assert [(row.currency, row.volume) for row in metrics.volume().rows] == [("usd", 500)]
    assert [(row.currency, row.mrr) for row in metrics.mrr().rows] == [("eur", 700)]
    assert metrics.mrr_history().rows[-1].mrr == 700
    assert {row.name for row in metrics.event_names().rows} == {"opened", "user_signup"}
    assert metrics.event_count("opened").rows[0].count == 1
    assert isinstance(metrics.event_series("opened").rows[0].day, date)


def token_with_metrics(control):
    return control._caller._headers["authorization"].removeprefix("Bearer ")  # noqa: SLF001 - it has every scope


def test_keys_are_minted_and_revoked_and_errors_are_typed(mauve_service, control):
    app = live_key(control, mauve_service, "Managing")
    assert app.app_id in {each.app_id for each in control.apps()}
    assert control.update_app(app.app_id, name="  Managing   two ").name == "Managing two"
    minted = control.mint_key(app.app_id, "pk")
    assert [key.kind for key in control.keys(app.app_id) if key.key_id == minted.key_id] == ["pk"]
    control.revoke_key(app.app_id, minted.key_id)
    assert [key.revoked for key in control.keys(app.app_id) if key.key_id == minted.key_id] == [True]
    control.set_webhook_secret(app.app_id, "biller_a", "whsec_abc")
    assert control.app(app.app_id).has_biller_a_webhook
    with pytest.raises(NotFound):
        control.app("app_unknown")
    with pytest.raises(Unauthorized):
        Metrics("sk_live_unknown", url=mauve_service.url).mau()
    publishable = control.mint_key(app.app_id, "pk").key
    eventually(lambda: all(key.mirrored_at for key in control.keys(app.app_id)))
    with pytest.raises(InsufficientScope):
        Metrics(publishable, url=mauve_service.url).mau()
    with pytest.raises(
        Unauthorized, match=r"Control needs a control token \(ctl_live_…\).*this is the server key sk_live_"
    ):
        Control(app.sk_key, url=mauve_service.url).apps()


def test_the_ingest_address_is_told_from_the_main_one(mauve_service, control):
    app = live_key(control, mauve_service, "Addresses")
    for read in (
        Metrics(app.sk_key, url=mauve_service.ingest_url).mau,
        Control("x", url=mauve_service.ingest_url).apps,
    ):
        with pytest.raises(NotFound, match="is the main address of the service, not its ingest port"):
            read()
    token = token_with_metrics(control)
    with pytest.raises(NotFound, match="check project"):
        Metrics(token, url=mauve_service.url, project=app.app_id).mau()
