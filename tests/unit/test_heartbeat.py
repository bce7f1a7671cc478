"""A hung process or loader is distinguished from a slow one, and from one that was suspended."""

from mauve.server.child_protocol import Heartbeat, LoadWatch
from support.clocks import Ticks


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


class Loading:
    """A loader whose work a test chooses, watched every second."""

    def __init__(self, hang_s=600):
        self.work, self.ticks = None, Ticks()
        self._watch = LoadWatch(hang_s, lambda: self.work, self.ticks)

    def hangs_within(self, seconds, *, step_s=1):
        for _ in range(0, seconds, step_s):
            self.ticks.now_s += step_s
            if self._watch.is_hung():
                return True
        return False


def test_a_load_step_that_does_not_end_hangs():
    loading = Loading()
    loading.work = 1
    assert not loading.hangs_within(600), "the first check only notes that it began"
    assert loading.hangs_within(1)


def test_a_loader_with_nothing_to_do_or_with_ever_new_ranges_does_not_hang():
    loading = Loading(hang_s=5)
    assert not loading.hangs_within(60)
    for loading.work in range(60):
        assert not loading.hangs_within(4)


def test_the_time_in_which_a_loader_was_suspended_does_not_count():
    loading = Loading()
    loading.work = 1
    assert not loading.hangs_within(500)
    assert not loading.hangs_within(3600, step_s=3600), "the machine slept for an hour"
    assert loading.hangs_within(100)


def test_a_hung_loader_can_be_ignored():
    loading = Loading(hang_s=0)
    loading.work = 1
    assert not loading.hangs_within(3600)
