"""Times parsed in bulk compared with times parsed one by one."""

from hypothesis import given
from hypothesis import strategies as st

from mauve.core.times import known_time_ms, occurred_at
from mauve.load.rows import occurred_moments

NOW = 1_794_744_000_000
USUAL = st.one_of(
    st.from_regex(r"(1969|2026)-1[01]-1\dT0\d:[0-5]\d:[0-5]\d\.\d\d\dZ", fullmatch=True),
    st.from_regex(r"2026-11-1\dT0\d:[0-5]\d:[0-5]\dZ", fullmatch=True),
)
ODD = st.sampled_from(
    [0, 2**70, -(2**70), NOW, "2026-11-15t03:20:00.123z", "2026-11-15 03:20:00Z", "2026-11-15T03:20:60Z"]
)
OTHER_OFFSETS = st.sampled_from(["2026-11-15T03:20:00.5+01:00", "2026-11-15T03:20:00.1239999Z", "0001-01-01T00:00:00Z"])
TIMES = st.one_of(USUAL, USUAL, ODD, OTHER_OFFSETS)
SAME_FORM = st.from_regex(r"2026-11-1\dT0\d:[0-5]\d:[0-5]\d\.\d\d\dZ", fullmatch=True)


@given(
    st.one_of(
        st.lists(st.tuples(SAME_FORM, SAME_FORM), min_size=1, max_size=5),
        st.lists(st.tuples(SAME_FORM, st.just("2026-11-15T03:20:00Z")), min_size=1, max_size=5),
        st.lists(st.tuples(TIMES, st.one_of(st.none(), TIMES)), min_size=1, max_size=5),
    )
)
def test_many_times_are_parsed_like_each_one_alone(claims):
    ats, sent_ats = zip(*claims, strict=True)
    expected = [
        occurred_at(known_time_ms(at), None if sent_at is None else known_time_ms(sent_at), NOW)
        for at, sent_at in claims
    ]
    assert occurred_moments(ats, sent_ats, NOW).tolist() == expected
