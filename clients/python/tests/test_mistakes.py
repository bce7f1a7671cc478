"""A mistake of the caller is named in the caller's words, as soon as it can be known."""

import sys
from decimal import Decimal

import pytest

from mauve_metrics import AsyncMauve, Mauve, Metrics
from stub import KEY, PATIENCE_S

DEAD = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: Mauve("", url=DEAD), ValueError, "key is empty"),
        (lambda: Mauve("sk_live_…", url=DEAD), ValueError, "key is a placeholder"),
        (lambda: Mauve("sk_live_...", url=DEAD), ValueError, "key is a placeholder"),
        (lambda: Metrics("<your key>", url=DEAD), ValueError, "the credential is a placeholder"),
        (lambda: Mauve(KEY, url=DEAD + "/v1/events"), ValueError, "url must end before /v1"),
        (lambda: Mauve(KEY, url=DEAD + "/proxy/v1/"), ValueError, "url must end before /v1"),
        (lambda: Metrics(KEY, url=DEAD + "/v1/metrics/mau"), ValueError, "url must end before /v1"),
        (lambda: Mauve(KEY, url=DEAD, on_drop="x"), TypeError, "on_drop must be a function .*, not str"),
        (lambda: AsyncMauve(KEY, url=DEAD, on_reject=5), TypeError, "on_reject must be a function .*, not int"),
    ],
)
def test_a_mistake_in_the_constructor_is_named(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_an_empty_key_in_the_environment_is_named_by_its_variable(monkeypatch):
    monkeypatch.setenv("MAUVE_KEY", " ")
    with pytest.raises(ValueError, match="MAUVE_KEY is empty"):
        Mauve(url=DEAD)


def test_a_path_of_a_proxy_may_hold_v1(service):
    with Mauve(KEY, url=service.url + "/v1/mauve") as mauve:
        mauve.track("seen")
    assert service.requests[0][0] == "/v1/mauve/v1/events"


def test_wrong_arguments_are_told_by_the_name_of_the_call(client):
    mauve = client(url=DEAD)
    constructor = "Mauve" if sys.version_info >= (3, 10) else "__init__"  # Older versions use the plain name.
    for name, call in {
        constructor: lambda: Mauve(KEY, url=DEAD, flush_intervall=1),
        "track": mauve.track,
        "payment": lambda: mauve.payment(id="p"),
    }.items():
        with pytest.raises(TypeError, match=rf"^{name}\(\) "):
            call()


def test_an_amount_that_is_no_integer_is_named_with_its_type(client):
    with pytest.raises(TypeError, match="amount must be a whole number of minor units, not Decimal"):
        client(url=DEAD).payment(id="p", amount=Decimal("19.99"), currency="eur")


def test_a_signup_event_without_a_user_is_sent_and_one_line_says_that_it_counts_nobody(service, client, caplog):
    mauve = client()
    for user in (None, "", "ann"):
        mauve.track("user_signup", user=user)
    assert mauve.flush(PATIENCE_S)
    assert len(service.items()) == 3
    (line,) = caplog.messages
    assert "without a user is sent, but adds no signup" in line
