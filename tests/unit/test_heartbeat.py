"""A hung process is distinguished from a slow one, and from a supervisor that was suspended."""

from mauve.server.heartbeat import Heartbeat


def checks_until_stopped(heartbeat, passed, checks=1000):
    return next((check for check in range(1, checks) if heartbeat.has_stopped(passed(check))), None)


def test_a_process_silent_for_the_configured_time_hangs():
    assert checks_until_stopped(Heartbeat(30), lambda check: 1.0) == 30


def test_a_process_that_beats_now_and_then_is_merely_slow():
    heartbeat = Heartbeat(30)
    for _ in range(20):
        assert checks_until_stopped(heartbeat, lambda check: 1.0, checks=29) is None
        heartbeat.beat()


def test_every_beat_restarts_the_count():
    heartbeat = Heartbeat(30)
    assert checks_until_stopped(heartbeat, lambda check: 1.0, checks=29) is None
    heartbeat.beat()
    assert checks_until_stopped(heartbeat, lambda check: 1.0) == 30


def test_time_in_which_the_supervisor_was_suspended_does_not_count():
    heartbeat = Heartbeat(30)
    assert checks_until_stopped(heartbeat, lambda check: 1.0, checks=20) is None
    assert not heartbeat.has_stopped(3600.0), "the machine slept for an hour"
    heartbeat.beat()
    assert checks_until_stopped(heartbeat, lambda check: 1.0) == 30


def test_a_supervisor_that_hardly_runs_checks_many_times_before_it_kills():
    assert checks_until_stopped(Heartbeat(30), lambda check: 60.0) == 15


def test_a_stopped_clock_kills_no_process():
    assert checks_until_stopped(Heartbeat(30), lambda check: 0.0) is None


def test_hang_detection_can_be_switched_off():
    assert checks_until_stopped(Heartbeat(0), lambda check: 1.0) is None
