"""A hung process or loader is distinguished from a slow one, and from one that was suspended."""

from mauve.server.child_protocol import Watchdog
from support.clocks import Ticks


class Process:
    """A process that beats when a test says so, checked every second unless told otherwise."""

    def __init__(self, hang_s=30):
        self.beats, self._ticks = 0, Ticks()
        self._watchdog = Watchdog(hang_s, lambda: self.beats, self._ticks)

    def checks_until_hung(self, step_s=1.0, checks=1000):
        for check in range(1, checks):
            self._ticks.now_s += step_s
            if self._watchdog.is_hung():
                return check
        return None


def test_a_process_silent_for_the_configured_time_hangs():
    assert Process().checks_until_hung() == 30


def test_a_process_that_beats_now_and_then_is_merely_slow():
    process = Process()
    for process.beats in range(1, 20):
        assert process.checks_until_hung(checks=29) is None


def test_every_beat_restarts_the_count():
    process = Process()
    assert process.checks_until_hung(checks=29) is None
    process.beats += 1
    assert process.checks_until_hung() == 31, "the first check only notes the beat"


def test_time_in_which_the_supervisor_was_suspended_does_not_count():
    process = Process()
    assert process.checks_until_hung(checks=20) is None
    assert process.checks_until_hung(step_s=3600.0, checks=2) is None, "the machine slept for an hour"


def test_a_supervisor_that_hardly_runs_checks_many_times_before_it_kills():
    assert Process().checks_until_hung(step_s=60.0) == 15


def test_a_stopped_clock_kills_no_process():
    assert Process().checks_until_hung(step_s=0.0) is None


def test_hang_detection_can_be_switched_off():
    assert Process(hang_s=0).checks_until_hung() is None


class Loading:
    """A loader whose work a test chooses, watched every second."""

    def __init__(self, hang_s=600):
        self.work, self.ticks = None, Ticks()
        self._watch = Watchdog(hang_s, lambda: self.work, self.ticks)

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
