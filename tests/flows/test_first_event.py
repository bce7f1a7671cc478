"""`first_event_at` is the earliest arrival, in whatever order events and payments are taken in."""

import pytest

from mauve.load.runner import note_first_events
from mauve.wiring.ledger import open_load_ledger
from support.service import bearer

PAYMENT = {"name": "payment", "id": "1", "props": {"amount": 5, "currency": "eur"}}


@pytest.fixture
def app(api, load):
    return api.post("/v1/apps", json={"name": "An app"}).json()


@pytest.fixture
def send(client, app):
    def post(event):
        assert client.post("/v1/events", json=event, headers=bearer(app["sk_key"])).status_code == 202

    return post


@pytest.fixture
def first_event_at(api, app, settings, parts):
    """Hand over what was seen, as the core does after every load, and look at the app."""

    def look():
        with open_load_ledger(settings) as ledger:
            note_first_events(ledger, parts.catalog.apps.note_first_event)
        return api.get(f"/v1/apps/{app['app_id']}").json()["first_event_at"]

    return look


def test_an_event_that_is_loaded_after_a_later_payment_was_recorded_is_the_first(send, load, first_event_at, clock):
    came_first = clock.now_ms()
    send({"name": "view"})  # It waits in the log.
    clock.advance(1_000)
    send(PAYMENT)  # It is in the ledger at once.
    assert first_event_at() == came_first + 1_000
    load()
    assert first_event_at() == came_first
    clock.advance(1_000)
    send({"name": "view"})
    load()
    assert first_event_at() == came_first
