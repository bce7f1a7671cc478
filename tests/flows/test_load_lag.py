"""What waits to be loaded, as the files and the ledger show it."""

from types import SimpleNamespace

import pytest

from mauve.wiring.warehouse import open_load_lag
from support.service import bearer

JUST_STARTED = SimpleNamespace(is_catching_up=False, caught_up_s_ago=None)


@pytest.fixture
def app(api, load):
    return api.post("/v1/apps", json={"name": "An app"}).json()


@pytest.fixture
def is_behind(settings, clock):
    def ask():
        clock.advance(1)
        with open_load_lag(settings, JUST_STARTED, clock) as lag:  # as after a restart at this moment
            return lag.is_behind()

    return ask


PAYMENT = {"name": "payment", "id": "1", "props": {"amount": 5, "currency": "eur"}}


@pytest.mark.parametrize("others", [[], [PAYMENT]], ids=["events alone", "events beside a payment"])
def test_a_restarted_core_is_behind_until_the_events_from_before_are_loaded(client, app, load, is_behind, others):
    assert not is_behind()
    events = [{"name": "view", "user": "ann"}, *others]
    assert client.post("/v1/events", json=events, headers=bearer(app["sk_key"])).status_code == 202
    assert is_behind()
    load()
    assert not is_behind()


def test_a_payment_alone_waits_for_nothing(client, app, is_behind):
    assert client.post("/v1/events", json=PAYMENT, headers=bearer(app["sk_key"])).status_code == 202
    assert not is_behind()
