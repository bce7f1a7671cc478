"""Machines that share a database share the server's clock, however far apart their own clocks are.

Proves: shared-limits.
"""

import time
from contextlib import ExitStack, closing

import pytest

from mauve.access.sessions import IDLE_MS, begin_session, find_session
from mauve.core.ids import SystemRandomness, new_id
from mauve.core.organization import Limits, Organization, Standing
from mauve.core.user import Role, User
from mauve.core.window import period_ends_at
from mauve.stores.catalog import OneTimeLink
from mauve.stores.catalog.catalog import Catalog
from mauve.stores.limits.read_meter import ReadCost, ReadLimits, ReadMeter, Throttle
from mauve.stores.limits.token_buckets import SqlTokenBuckets
from mauve.stores.sql.database import Database
from mauve.stores.sql.migrate import CATALOG
from support.service import PATIENCE_S

pytestmark = pytest.mark.servers

HOUR, DAY, MONTH = 3_600_000, 24 * 3_600_000, 31 * 24 * 3_600_000
RANDOM = SystemRandomness()


@pytest.fixture
def open_database(new_sql_database, tmp_path):
    url = new_sql_database("postgresql", CATALOG, tmp_path)
    with ExitStack() as opened:
        yield lambda: opened.enter_context(closing(Database(url, PATIENCE_S)))


def system_ms():
    """Return the time of this system, which is that of the server."""
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("apart_ms", [HOUR, -HOUR, 2 * MONTH, -2 * MONTH])
def test_a_meter_has_one_window_and_one_billing_period(open_database, apart_ms):
    here, there = ReadMeter(open_database()), ReadMeter(open_database())
    limits, query = ReadLimits(1000, 3, 1000), ReadCost(queries=1)
    began_at = system_ms()
    clocks = ((here, 0), (there, apart_ms)) * 3
    refusals = [meter.take("org", query, limits, system_ms() + ahead) for meter, ahead in clocks]
    if period_ends_at(began_at) != period_ends_at(system_ms()):
        pytest.skip("a billing period ended during the test")
    assert [refusal is None for refusal in refusals] == [True, True, True, False, False, False]
    assert {refusal.lifts_at for refusal in refusals[3:]} == {period_ends_at(began_at)}
    for meter, ahead in clocks[:2]:
        usage = meter.usage("org", system_ms() + ahead)
        assert usage.queries == 3
        assert usage.reads == 3 or system_ms() - began_at > 60_000


def test_a_refusal_tells_the_wait_on_the_clock_of_the_server(open_database):
    meter = ReadMeter(open_database())
    began_at = system_ms()
    assert meter.take("org", ReadCost(), ReadLimits(1, 0, 0), began_at - HOUR) is None
    refusal = meter.take("org", ReadCost(), ReadLimits(0, 0, 0), began_at + HOUR)
    assert refusal.throttle is Throttle.RATE_LIMIT
    assert began_at - 1 <= refusal.at <= system_ms() + 1
    assert 0 < refusal.lifts_at - refusal.at <= 60_000


def test_password_attempts_are_neither_forgotten_nor_given_back(open_database):
    here, there = (SqlTokenBuckets(open_database(), "pair", 1e-6, 4) for _ in range(2))
    began_at = system_ms()
    clocks = ((here, 0), (there, HOUR), (here, -HOUR)) * 3
    waits = [buckets.seconds_to_wait("ann", began_at + ahead) for buckets, ahead in clocks]
    assert [wait_s == 0 for wait_s in waits] == [True] * 4 + [False] * 5


@pytest.mark.parametrize("ahead_ms", [2 * IDLE_MS, -2 * IDLE_MS])
def test_a_session_is_as_old_on_every_machine(open_database, ahead_ms):
    here, there = Catalog(open_database()), Catalog(open_database())
    organization = Organization(new_id("org", RANDOM), "Acme", Standing.LIVE, None, Limits(), system_ms())
    here.organizations.create(organization)
    ann = User(new_id("usr", RANDOM), organization.org_id, "ann@example.com", Role.OWNER, system_ms())
    link = OneTimeLink(new_id("lnk", RANDOM), b"digest", ann.user_id, system_ms() + DAY, system_ms())
    here.users.create(ann, link, lambda _members: None)
    secrets = [
        begin_session(here.sessions, ann.user_id, "here", system_ms(), RANDOM).reveal(),
        begin_session(there.sessions, ann.user_id, "there", system_ms() + ahead_ms, RANDOM).reveal(),
    ]
    for catalog, ahead in ((here, 0), (there, ahead_ms)):
        found = [find_session(catalog.sessions, secret, system_ms() + ahead) for secret in secrets]
        assert [each.session.agent for each in found] == ["here", "there"]
    there.sessions.note_seen(found[0].session.session_id, system_ms() + ahead_ms)
    assert find_session(here.sessions, secrets[0], system_ms()) is not None
