"""What every place promises in which processes tell one another what they have accepted."""

from mauve.core.tally import Account, Tally

ONE = Account("org_1", "2026-11")
TWO = Account("org_2", "2026-11")


def a_tally(*lines, account=ONE):
    return Tally({account: list(lines)})


def content_of(tally):
    return dict(tally)


def test_a_new_place_is_empty(open_tallies):
    tallies = open_tallies(1)
    assert not tallies.own()
    assert tallies.others() == {}


def test_what_is_shared_is_seen_by_the_others_and_by_the_next_process_of_the_stream(open_tallies):
    one, two = open_tallies(1), open_tallies(2)
    tally = Tally({ONE: [(7, 500), (2**46 - 1, 1)], TWO: [(8, 2**40)]})
    one.share(tally)
    assert one.others() == {}
    assert {stream: content_of(seen) for stream, seen in two.others().items()} == {1: content_of(tally)}
    assert content_of(open_tallies(1).own()) == content_of(tally)
    assert not open_tallies(2).own()


def test_what_is_shared_later_replaces_what_was_shared_before(open_tallies):
    one, two = open_tallies(1), open_tallies(2)
    for tally in (a_tally((7, 500)), a_tally((9, 3)), a_tally((9, 3)), Tally(), a_tally((11, 1))):
        one.share(tally)
        assert content_of(two.others()[1]) == content_of(tally)


def test_what_a_process_does_with_its_own_tally_is_its_own_matter(open_tallies):
    open_tallies(1).share(a_tally((7, 500)))
    tallies = open_tallies(1)
    tallies.own().add(ONE, 8, 1)
    assert content_of(tallies.own()) == {ONE: [(7, 500)]}


def test_damage_is_taken_for_nothing(open_tallies, tmp_path):
    open_tallies(1).share(a_tally((7, 500)))
    file = tmp_path / "tallies" / "001"
    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], bytes(len(whole)), b"\xc1" * 9, b"[]"):
        file.write_bytes(damaged)
        assert content_of(open_tallies(2).others()[1]) == {}
        assert not open_tallies(1).own()
