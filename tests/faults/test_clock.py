"""The machine's clock is set back two hours or forward three days: nothing locks up, and order is that of arrival.

Proves: clock.
"""

import pytest

from mauve.access.sign_in_attempts import PasswordAttempts
from mauve.overload.token_bucket import TokenBuckets
from mauve.stores.warehouse.warehouse_reader import WarehouseReader
from support.service import bearer

HOUR_MS = 3_600_000
JUMPS = pytest.mark.parametrize("jump_ms", [-2 * HOUR_MS, 72 * HOUR_MS], ids=["back", "forward"])


@pytest.fixture
def read_warehouse(connection):
    return WarehouseReader(lambda: connection)


@pytest.fixture
def key(api, load):
    return api.post("/v1/apps", json={"name": "An app"}).json()["sk_key"]


@JUMPS
def test_events_are_accepted_and_counted_before_and_after_a_clock_jump(client, key, clock, load, connection, jump_ms):
    for number in range(6):
        reply = client.post("/v1/events", json={"name": "view", "id": str(number % 5)}, headers=bearer(key))
        assert reply.status_code == 202
        load()
        clock.advance(jump_ms if number == 2 else 1)
    rows = connection.read("SELECT id, counted FROM mauve.events ORDER BY seq", {})
    assert rows == [["0", 1], ["1", 1], ["2", 1], ["3", 1], ["4", 1], ["0", 0]]


@JUMPS
def test_an_answer_does_not_stay_fresh_forever_after_a_clock_jump(client, key, clock, load, jump_ms):
    window = {"date_from": "2027-01-01", "date_to": "2027-02-01"}

    def mau():
        reply = client.get("/v1/metrics/mau", params=window, headers=bearer(key))
        return reply.json()["data"], reply.headers["x-cache"]

    client.post("/v1/events", json={"name": "view", "user": "ann"}, headers=bearer(key))
    load()
    assert mau() == ([{"mau": 1}], "miss")
    clock.advance(jump_ms)
    client.post("/v1/events", json={"name": "view", "user": "bob"}, headers=bearer(key))
    load()
    assert mau() == ([{"mau": 2}], "miss")
    assert mau() == ([{"mau": 2}], "hit")


@JUMPS
def test_a_publishable_key_is_not_locked_out_by_a_clock_jump(jump_ms):
    rate = TokenBuckets(2)
    now_ms = 1_800_000_000_000
    while rate.seconds_to_wait("key", now_ms) == 0:
        pass
    now_ms += jump_ms
    wait_s = rate.seconds_to_wait("key", now_ms)
    assert wait_s <= 1
    assert rate.seconds_to_wait("key", now_ms + 1000 * wait_s) == 0


@JUMPS
def test_a_clock_jump_does_not_prolong_a_sign_in_lockout(jump_ms):
    attempts = PasswordAttempts()
    now_ms = 1_800_000_000_000

    def wait_s(at_ms):
        return attempts.seconds_to_wait("ann@example.com", "192.0.2.1", at_ms)

    while wait_s(now_ms) == 0:
        pass
    now_ms += jump_ms
    wait = wait_s(now_ms)
    assert wait <= 60
    assert wait_s(now_ms + 1000 * wait) == 0
