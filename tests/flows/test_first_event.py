"""`first_event_at` is the earliest arrival, in whatever order events and payments are processed."""

import pytest

from mauve.load.runner import note_first_events
from mauve.wiring.databases import open_load_ledger
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
    """Pass first events on to the catalog, as the core does after every load, and read the app."""

    def read():
        with open_load_ledger(settings) as ledger:
            note_first_events(ledger, parts.catalog.apps.note_first_event)
        return api.get(f"/v1/apps/{app['app_id']}").json()["first_event_at"]

    return read


def test_an_event_loaded_after_a_later_payment_is_still_the_first(send, load, first_event_at, clock):
    first_at = clock.now_ms()
    send({"name": "view"})  # It is in the log, not yet loaded.
    clock.advance(1_000)
    send(PAYMENT)  # It is in the ledger at once.
    assert first_event_at() == first_at + 1_000
    load()
    assert first_event_at() == first_at
    clock.advance(1_000)
    send({"name": "view"})
    load()
    assert first_event_at() == first_at
