"""What every exchange of accepted counts promises."""

from mauve.core.accepted import AcceptedCounts, OrgPeriod
from mauve.stores.limits.accepted import FileAcceptedCounts

ONE = OrgPeriod("org_1", "2026-11")
TWO = OrgPeriod("org_2", "2026-11")


def some_counts(*lines, org_period=ONE):
    return AcceptedCounts({org_period: list(lines)})


def content_of(accepted):
    """Return counts by stream as plain values."""
    return {stream: dict(counts) for stream, counts in dict(accepted).items()}


def test_a_new_exchange_is_empty(open_exchange):
    exchange = open_exchange(1)
    assert not exchange.own()
    assert exchange.others() == []


def test_shared_counts_are_seen_by_others_and_by_the_next_process_of_the_stream(open_exchange):
    one, two = open_exchange(1), open_exchange(2)
    accepted = AcceptedCounts({ONE: [(7, 500), (2**46 - 1, 1)], TWO: [(8, 2**40)]})
    one.share({1: accepted})
    assert one.others() == []
    assert len(two.others()) == 1
    assert content_of(two.others()) == {1: dict(accepted)}
    assert content_of(open_exchange(1).own()) == {1: dict(accepted)}
    assert not open_exchange(2).own()


def test_later_counts_replace_earlier_ones(open_exchange):
    one, two = open_exchange(1), open_exchange(2)
    for accepted in (
        some_counts((7, 500)),
        some_counts((9, 3)),
        some_counts((9, 3)),
        AcceptedCounts(),
        some_counts((11, 1)),
    ):
        one.share({1: accepted})
        assert dict(dict(two.others()).get(1, {})) == dict(accepted)


def test_changing_the_returned_counts_changes_nothing_for_others(open_exchange):
    open_exchange(1).share({1: some_counts((7, 500))})
    exchange = open_exchange(1)
    exchange.own()[1].add(ONE, 8, 1)
    assert content_of(exchange.own()) == {1: {ONE: [(7, 500)]}}


def test_a_damaged_file_counts_as_empty(tmp_path):
    def open_exchange(stream):
        return FileAcceptedCounts(tmp_path / "accepted", stream)

    open_exchange(1).share({1: some_counts((7, 500))})
    file = tmp_path / "accepted" / "001"
    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], bytes(len(whole)), b"\xc1" * 9, b"[]"):
        file.write_bytes(damaged)
        assert content_of(open_exchange(2).others()) == {}
        assert not open_exchange(1).own()
