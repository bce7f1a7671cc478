"""A process that hangs is told from one that is slow, and from a supervisor that was away."""

from mauve.server.heartbeat import Heartbeat


def looks_until_stopped(pulse, passed, looks=1000):
    return next((look for look in range(1, looks) if pulse.has_stopped(passed(look))), None)


def test_who_is_silent_for_as_long_as_stated_hangs():
    assert looks_until_stopped(Heartbeat(30), lambda look: 1.0) == 30


def test_who_beats_now_and_then_is_merely_slow():
    pulse = Heartbeat(30)
    for _ in range(20):
        assert looks_until_stopped(pulse, lambda look: 1.0, looks=29) is None
        pulse.heard()


def test_silence_begins_anew_with_every_beat():
    pulse = Heartbeat(30)
    assert looks_until_stopped(pulse, lambda look: 1.0, looks=29) is None
    pulse.heard()
    assert looks_until_stopped(pulse, lambda look: 1.0) == 30


def test_time_in_which_the_supervisor_was_away_is_forgiven():
    pulse = Heartbeat(30)
    assert looks_until_stopped(pulse, lambda look: 1.0, looks=20) is None
    assert not pulse.has_stopped(3600.0), "the machine slept for an hour"
    pulse.heard()
    assert looks_until_stopped(pulse, lambda look: 1.0) == 30


def test_a_supervisor_that_hardly_runs_ends_nobody_before_it_has_looked_often():
    assert looks_until_stopped(Heartbeat(30), lambda look: 60.0) == 15


def test_a_clock_that_stands_still_ends_nobody():
    assert looks_until_stopped(Heartbeat(30), lambda look: 0.0) is None


def test_it_can_be_switched_off():
    assert looks_until_stopped(Heartbeat(0), lambda look: 1.0) is None
