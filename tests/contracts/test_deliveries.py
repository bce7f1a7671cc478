"""What every ledger promises about deliveries."""

from dataclasses import replace

import pytest

from mauve.stores import StoreUnavailableError
from mauve.stores.deliveries import DELIVERIES_KEPT, Delivery, DeliveryResult, Tally
from mauve.stores.ledger import Entry
from mauve.stores.ledger.deliveries import DeliveryReader
from support.ledger_entries import NOW, a_payment, everything_in


@pytest.fixture
def deliveries(ledger_database):
    return DeliveryReader(ledger_database)


def a_delivery(at=NOW, project="proj_1", result=DeliveryResult.STORED, warnings=()):
    return Delivery(project, "biller_a", at, "invoice.paid", result, 1, warnings)


def noted(*deliveries):
    return [Entry(delivery=delivery) for delivery in deliveries]


def counts(reader, project="proj_1"):
    return {(tally.provider, tally.word): (tally.count, tally.last_at) for tally in reader.tallies(project)}


def test_a_delivery_is_returned_as_recorded(writer, deliveries):
    given = a_delivery(result=DeliveryResult.UNUSABLE, warnings=("amount_unusable", "plane_mismatch"))
    writer.record(noted(given))
    assert deliveries.recent("proj_1") == [given]


def test_the_latest_delivery_comes_first_regardless_of_the_clock(writer, deliveries):
    given = [a_delivery(NOW), a_delivery(NOW - 5), a_delivery(NOW + 5)]
    writer.record(noted(*given[:2]))
    writer.record(noted(given[2]))
    assert deliveries.recent("proj_1") == given[::-1]


def test_projects_are_kept_apart(writer, deliveries):
    writer.record(noted(a_delivery(), a_delivery(project="proj_2")))
    assert [each.project for each in deliveries.recent("proj_2")] == ["proj_2"]
    assert counts(deliveries, "proj_2") == {("biller_a", "stored"): (1, NOW)}
    assert (deliveries.recent("proj_3"), deliveries.tallies("proj_3")) == ([], [])


@pytest.mark.parametrize("at_once", [1, 7, DELIVERIES_KEPT + 30])
def test_only_the_latest_are_kept_and_all_are_counted(writer, deliveries, at_once):
    writer.record(noted(a_delivery(project="proj_2")))
    given = [a_delivery(NOW + number) for number in range(DELIVERIES_KEPT + 30)]
    for start in range(0, len(given), at_once):
        writer.record(noted(*given[start : start + at_once]))
    assert deliveries.recent("proj_1") == given[: -DELIVERIES_KEPT - 1 : -1]
    assert counts(deliveries) == {("biller_a", "stored"): (len(given), given[-1].at)}
    assert len(deliveries.recent("proj_2")) == 1, "the others are not pushed out"


def test_every_label_is_counted_with_its_last_time(writer, deliveries):
    writer.record(noted(a_delivery(NOW, warnings=("fee_unknown",)), a_delivery(NOW - 9, warnings=("fee_unknown",))))
    writer.record([Entry(tallies=[Tally("proj_1", "biller_b", "refused", 40, NOW + 2)])])
    writer.record([Entry(tallies=[Tally("proj_1", "biller_b", "refused", 2, NOW + 1)])])
    assert counts(deliveries) == {
        ("biller_a", "fee_unknown"): (2, NOW),
        ("biller_a", "stored"): (2, NOW),
        ("biller_b", "refused"): (42, NOW + 2),
    }


def test_a_payment_is_recorded_with_its_delivery_or_not_at_all(writer, ledger_database):
    before = everything_in(ledger_database)
    with pytest.raises(StoreUnavailableError):
        writer.record([Entry(payments=[a_payment()], delivery=replace(a_delivery(), type=None))])
    assert everything_in(ledger_database) == before


def test_payments_not_sent_by_a_client_do_not_count_as_usage(writer, loader):
    writer.record([Entry(payments=[a_payment("one", source="biller_a"), a_payment("two")])])
    assert loader.usage("2027-01") == {"org_1": 1}
    assert set(loader.first_seen()) == {"proj_1"}
