"""The list of what arrived last: events and payments in one order."""

from mauve.dashboard.pages.events import Arrival, merged


def some(name, count, received_at):
    return [Arrival(name, "", received_at, received_at) for _ in range(count)]


def names(arrivals):
    return "".join(arrival.name for arrival in arrivals)


def test_arrivals_are_merged_latest_first():
    assert names(merged(some("e", 1, 3) + some("f", 1, 1), some("p", 1, 2))) == "epf"


def test_the_events_of_a_batch_do_not_hide_its_payments():
    assert names(merged(some("e", 20, 1), some("p", 20, 1)))[:6] == "epepep"
    assert names(merged(some("e", 3, 1), some("p", 1, 1))) == "epee"
    assert names(merged([], some("p", 2, 1))) == "pp"
