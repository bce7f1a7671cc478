"""How workers of several machines divide a limit that they keep in sum."""

from mauve.overload.live_workers import ANSWERS_MAX, BEATS_OF_USE, MISSED_MAX, Beat, LiveWorkers
from mauve.overload.token_bucket import DividedTokenBuckets


class Air:
    """Carry beats to all workers that are not cut off, and the answers to them."""

    def __init__(self, *names):
        self.workers = {name: LiveWorkers(name) for name in names}
        self.cut_off = set()

    def beat(self, *names):
        for name in names or tuple(self.workers):
            self._carry(name, self.workers[name].next_beat())

    def counts(self):
        return {name: worker.live for name, worker in self.workers.items()}

    def sharing(self):
        return {name: worker.sharing for name, worker in self.workers.items()}

    def use(self, name):
        if self.workers[name].use():
            self.beat(name)

    def _carry(self, sender, beat):
        if sender in self.cut_off:
            return
        heard = {name: worker for name, worker in self.workers.items() if name not in self.cut_off}
        answers = [(name, worker.hear(beat)) for name, worker in heard.items()]
        for name, answer in answers:
            if answer is not None:
                self._carry(name, answer)


def test_a_worker_that_joins_knows_all_others_at_once_and_they_know_it():
    air = Air("a", "b", "c")
    air.beat()
    air.workers["d"] = LiveWorkers("d")
    air.beat("d")
    assert air.counts() == {"a": 4, "b": 4, "c": 4, "d": 4}


def test_a_worker_that_dies_is_forgotten_after_some_beats():
    air = Air("a", "b", "c")
    air.beat()
    for _ in range(MISSED_MAX):
        air.beat("a", "b")
    assert air.counts() == {"a": 3, "b": 3, "c": 3}
    air.beat("a", "b")
    assert air.counts() == {"a": 2, "b": 2, "c": 3}


def test_workers_that_are_cut_off_forget_no_one():
    air = Air("a", "b", "c")
    air.beat()
    air.cut_off = {"a", "b", "c"}
    for _ in range(10 * MISSED_MAX):
        air.beat()
    assert air.counts() == {"a": 3, "b": 3, "c": 3}
    air.cut_off = set()
    air.beat("a")
    assert air.counts() == {"a": 3, "b": 3, "c": 3}, "the others may need a moment longer to connect again"


def test_own_beats_that_were_held_up_do_not_age_the_others():
    worker = LiveWorkers("a")
    worker.hear(Beat("b", 7))
    held_up = [worker.next_beat() for _ in range(10 * MISSED_MAX)]
    for beat in held_up:
        worker.hear(beat)
    assert worker.live == 2


def test_answers_are_few_when_many_workers_start_together():
    worker = LiveWorkers("a")
    answers = [worker.hear(Beat(f"w{number}", 1)) for number in range(1_000)]
    assert [answer for answer in answers if answer] == [Beat("a", 0, is_sharing=False)] * ANSWERS_MAX
    assert worker.live == 1_001


def test_workers_that_are_not_used_leave_their_share_to_the_others():
    air = Air("a", "b", "c")
    air.beat()
    assert air.sharing() == {"a": 1, "b": 1, "c": 1}
    air.use("a")
    assert air.sharing() == {"a": 1, "b": 2, "c": 2}, "one that is used next takes only what is left"
    air.use("b")
    assert air.sharing() == {"a": 2, "b": 2, "c": 3}
    for _ in range(BEATS_OF_USE - 1):
        air.beat()
        air.use("a")
    assert air.sharing() == {"a": 2, "b": 2, "c": 3}
    air.beat()
    assert air.sharing() == {"a": 1, "b": 2, "c": 2}


def test_a_worker_that_dies_leaves_its_share():
    air = Air("a", "b")
    air.beat()
    air.use("a")
    air.use("b")
    for _ in range(MISSED_MAX + 2):
        air.beat("a")
    assert air.workers["a"].sharing == 1


def allowed(buckets, at_ms, key="key_1"):
    """Return how many single events one key may send at a moment."""
    count = 0
    while buckets.seconds_to_wait(key, at_ms) == 0:
        buckets.charge(key, at_ms, 1)
        count += 1
    return count


def test_a_lone_worker_allows_bursts_of_five_seconds():
    buckets = DividedTokenBuckets(100, lambda: 1)
    assert allowed(buckets, 0) == 500
    assert allowed(buckets, 1_000) == 100
    assert allowed(buckets, 61_000) == 500


def test_each_worker_allows_its_share_and_more_when_another_dies():
    workers = 4
    buckets = DividedTokenBuckets(100, lambda: workers)
    assert allowed(buckets, 0) == 25, "the others may have given out the burst"
    assert allowed(buckets, 1_000) == 25
    assert allowed(buckets, 10_000) == 125
    workers = 2
    assert allowed(buckets, 20_000) == 250
    workers = 1
    assert allowed(buckets, 30_000) == 500
    workers = 10
    assert allowed(buckets, 40_000) == 50


def test_workers_that_join_one_by_one_do_not_repeat_the_burst():
    workers = [DividedTokenBuckets(100, lambda sharing=sharing: sharing) for sharing in range(1, 11)]
    assert sum(allowed(buckets, 0) for buckets in workers) < 500 + 100 * 3


def test_a_bucket_that_is_not_empty_admits_a_request_of_any_size_and_then_owes_the_rest():
    buckets = DividedTokenBuckets(100, lambda: 1)
    assert buckets.seconds_to_wait("key_1", 0) == 0
    buckets.charge("key_1", 0, 800)
    wait_s = buckets.seconds_to_wait("key_1", 0)
    assert wait_s == 4, "300 are owed"
    assert buckets.seconds_to_wait("key_1", 2_000) == 2
    assert buckets.seconds_to_wait("key_1", 0, own=800) == 0, "the caller itself caused the debt"
    assert buckets.seconds_to_wait("key_1", wait_s * 1000) == 0


def test_a_client_that_waits_as_told_gets_its_whole_share():
    """A batch is never refused twice in a row: what it costs is not asked for in advance."""
    buckets, now_ms, sent = DividedTokenBuckets(1000, lambda: 16), 0, 0
    for _ in range(100):
        now_ms += 1000 * buckets.seconds_to_wait("key_1", now_ms)
        assert buckets.seconds_to_wait("key_1", now_ms) == 0
        buckets.charge("key_1", now_ms, 500)
        sent += 500
    assert sent / (now_ms / 1000) > 1000 / 16 * 0.95
