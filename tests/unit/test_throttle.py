"""Limits on reads.

Proves: expendable.
"""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from mauve.access.read_limits import FailOpenMeter, check_reads, cost_of, seconds_until
from mauve.core.app import Environment
from mauve.core.credential import KeyKind, Scope
from mauve.core.organization import Standing
from mauve.core.problems import Code, Problem
from mauve.stores import StoreUnavailableError
from mauve.stores.limits.read_meter import ReadCost, ReadMeter, Throttle, Throttled
from mauve.stores.published import PublishedKey, PublishedOrganization, PublishedToken
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import CATALOG, migrate
from mauve.web.envelopes import data_reply

NOW = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp()) * 1000
TOKEN = PublishedToken("L" * 16, bytes(32), "org_1", Environment.LIVE, frozenset(Scope), revoked=False)


def a_key(plane):
    return PublishedKey("key_1", bytes(32), KeyKind.SERVER, plane, "proj_1", "app_1", "org_1", revoked=False)


KEY, TEST_KEY = a_key(Environment.LIVE), a_key(Environment.TEST)


def an_organization(reads_per_minute=600, agent_queries=100, raw_scans=10):
    return PublishedOrganization("org_1", Standing.SUSPENDED, None, None, reads_per_minute, agent_queries, raw_scans)


@pytest.fixture
def database(tmp_path):
    with closing(Database(sqlite_url(tmp_path / "catalog.db"), busy_timeout_s=0.01)) as opened:
        migrate(opened, CATALOG)
        yield opened


@pytest.fixture
def meter(database):
    return ReadMeter(database)


def refusal(meter, organization, reader, *, is_raw_scan=False, now=NOW):
    """Return the reply to the first refused read."""
    for _ in range(1000):
        try:
            check_reads(meter, organization, reader, now, is_raw_scan=is_raw_scan)
        except Problem as problem:
            reply = data_reply(problem)
            return reply.status, dict(reply.headers), reply.body.decode(), problem.code
    raise AssertionError("it is never refused")


def test_only_control_tokens_spend_allowances():
    assert cost_of(TOKEN, is_raw_scan=False) == ReadCost(queries=1, raw_scans=0)
    assert cost_of(TOKEN, is_raw_scan=True) == ReadCost(queries=1, raw_scans=1)
    for key in (KEY, TEST_KEY):
        assert cost_of(key, is_raw_scan=False) == cost_of(key, is_raw_scan=True) == ReadCost(queries=0, raw_scans=0)


def test_keys_and_tokens_share_the_minute(meter):
    organization = an_organization(reads_per_minute=3)
    for reader in (KEY, TOKEN, TEST_KEY):
        check_reads(meter, organization, reader, NOW, is_raw_scan=False)
    for reader in (KEY, TOKEN, TEST_KEY):
        with pytest.raises(Problem):
            check_reads(meter, organization, reader, NOW, is_raw_scan=False)


def test_too_many_reads_in_a_minute_say_when_to_retry(meter):
    organization = an_organization(reads_per_minute=1)
    check_reads(meter, organization, KEY, NOW, is_raw_scan=False)
    status, headers, body, code = refusal(meter, organization, KEY, now=NOW + 9_001)
    assert (status, code) == (429, Code.RATE_LIMITED)
    assert headers == {"content-type": "application/json", "x-service-throttle": "rate_limit", "retry-after": "51"}
    assert body.startswith('{"ok":false,"error":"')
    assert "51 s" in body


def test_spent_queries_say_when_they_reset_and_not_to_retry(meter):
    status, headers, body, _ = refusal(meter, an_organization(agent_queries=2), TOKEN)
    assert status == 429
    assert headers == {
        "content-type": "application/json",
        "x-service-throttle": "allowance:queries",
        "x-service-reset": "2026-12-01T00:00:00Z",
    }
    assert body.startswith(
        '{"ok":false,"reason":"allowance","scope":"queries","reset_at":"2026-12-01T00:00:00Z","error":"'
    )


def test_spent_raw_scans_leave_the_other_metrics_and_the_server_keys_alone(meter):
    organization = an_organization(raw_scans=2)
    status, headers, body, _ = refusal(meter, organization, TOKEN, is_raw_scan=True)
    assert (status, headers["x-service-throttle"]) == (429, "allowance:raw_scans")
    assert '"scope":"raw_scans"' in body
    assert "retry-after" not in headers
    check_reads(meter, organization, TOKEN, NOW, is_raw_scan=False)
    check_reads(meter, organization, KEY, NOW, is_raw_scan=True)


def test_a_changed_limit_applies_at_once(meter):
    refusal(meter, an_organization(reads_per_minute=2), KEY)
    check_reads(meter, an_organization(reads_per_minute=3), KEY, NOW, is_raw_scan=False)


def test_an_unpublished_organization_has_the_default_limits(meter):
    for _ in range(600):
        check_reads(meter, None, TOKEN, NOW, is_raw_scan=False)
    with pytest.raises(Problem):
        check_reads(meter, None, TOKEN, NOW, is_raw_scan=False)


@pytest.fixture
def locked(tmp_path, database):
    """Lock the catalog: nothing can be counted."""
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


@pytest.mark.usefixtures("locked")
def test_a_read_that_cannot_be_counted_is_refused(meter):
    with pytest.raises(StoreUnavailableError):
        check_reads(meter, an_organization(reads_per_minute=9), TOKEN, NOW, is_raw_scan=True)


def test_a_meter_that_fails_open_allows_reads_until_it_can_count_again(database, locked):
    meter = FailOpenMeter(database)
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            check_reads(meter, an_organization(reads_per_minute=0), TOKEN, NOW, is_raw_scan=True)
    assert [line["event"] for line in logged] == ["reads_not_counted"]
    locked.rollback()
    assert refusal(meter, an_organization(reads_per_minute=2), TOKEN)[0] == 429


def test_the_wait_is_measured_on_the_clock_of_the_meter():
    class MeterAnHourAhead:
        def take(self, org_id, uses, limits, now_ms):
            ahead = now_ms + 3_600_000
            return Throttled(Throttle.RATE_LIMIT, ahead + 7_000, ahead)

    with pytest.raises(Problem) as refused:
        check_reads(MeterAnHourAhead(), an_organization(), KEY, NOW, is_raw_scan=False)
    assert refused.value.facts["retry_after_s"] == 7


@given(st.integers(-(10**6), 10**6))
def test_the_wait_is_in_whole_seconds_never_too_short_and_at_least_one(wait_ms):
    wait_s = seconds_until(NOW + wait_ms, NOW)
    assert wait_s >= 1
    assert wait_s * 1000 >= wait_ms
    assert wait_s == 1 or (wait_s - 1) * 1000 < wait_ms
