"""With a spool, what is queued survives the process: sent once, by one process, within a limit."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve_metrics import Mauve, Stats
from mauve_metrics._delivery import Delivery
from mauve_metrics._outbox import Outbox
from mauve_metrics._segment import Entry
from mauve_metrics._spool import Spool
from stub import KEY, PATIENCE_S, ManualClock, accept, eventually, total

DEAD = "http://127.0.0.1:1"
SPOOLED = ("events", "objects")
SOURCES = str(Path(__file__).parents[1] / "src")


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def names(service):
    return [item["name"] for item in service.items()]


def run_until(line, program, *arguments):
    """Start a program, and return it once it has printed the line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCES},
    )
    for said in process.stdout:
        if said.strip() == line:
            return process
    raise AssertionError("the program ended without its line")


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)
    process.stdout.close()


QUEUE_AND_HANG = """
import sys, time
from mauve_metrics import Mauve
mauve = Mauve(sys.argv[1], url=sys.argv[2], spool=sys.argv[3], max_queue=int(sys.argv[4]))
for number in range(int(sys.argv[5])):
    mauve.track(f"event {number}")
mauve.subscription(id="s", status="active", mrr=1, currency="eur")
print("queued", flush=True)
time.sleep(600)
"""


def test_what_a_killed_process_had_queued_is_sent_by_the_next_in_order(service, client, tmp_path):
    kill(run_until("queued", QUEUE_AND_HANG, KEY, DEAD, str(tmp_path), "50", "300"))
    mauve = client(spool=tmp_path, max_queue=50)
    eventually(lambda: mauve.stats.accepted == 301)
    assert names(service) == [f"event {number}" for number in range(300)]
    assert len(service.items("/v1/objects")) == 1
    assert mauve.close()
    assert files(tmp_path) == []


def test_what_was_answered_before_a_kill_is_not_sent_again(service, client, tmp_path):
    service.answers, service.answer = [accept], (402, {}, None)
    process = run_until("queued", QUEUE_AND_HANG, KEY, service.url, str(tmp_path), "1000", "700")
    eventually(lambda: any(path.suffix == ".done" for path in files(tmp_path)))
    kill(process)
    before = {item["id"] for item in service.requests[0][2]}
    service.requests.clear()
    service.answer = accept
    mauve = client(spool=tmp_path)
    assert eventually(lambda: mauve.stats.accepted > 0 and mauve.stats.queued == 0)
    after = [item["id"] for item in service.items() + service.items("/v1/objects")]
    assert before.isdisjoint(after)
    assert len(before) + len(after) == 701
    assert len(set(after)) == len(after)


def test_a_living_process_keeps_its_items_and_its_successor_is_only_one(service, client, tmp_path):
    process = run_until("queued", QUEUE_AND_HANG, KEY, DEAD, str(tmp_path), "1000", "20")
    first = client(spool=tmp_path)
    first.track("own")
    assert first.flush(PATIENCE_S)
    assert names(service) == ["own"]
    kill(process)
    others = [client(spool=tmp_path) for _ in range(4)]
    eventually(lambda: sum(each.stats.accepted for each in others) == 21)
    assert sorted(names(service)) == sorted(["own", *(f"event {number}" for number in range(20))])


def test_what_close_could_not_deliver_stays_spooled(service, client, tmp_path):
    dropped = []
    gone = client(url=DEAD, spool=tmp_path, on_drop=lambda *item_and_reason: dropped.append(item_and_reason))
    gone.track("seen")
    assert not gone.close(0.2)
    assert gone.stats == Stats(queued=1, retries=gone.stats.retries)
    assert dropped == []
    mauve = client(spool=tmp_path)
    eventually(lambda: mauve.stats.accepted == 1)
    assert names(service) == ["seen"]


def test_a_client_that_closes_at_once_sends_what_earlier_ones_left(service, tmp_path, monkeypatch, caplog):
    spool = left_by(20, tmp_path, 3)
    has_begun_closing = threading.Event()
    search, begin_close = Spool.find_abandoned, Delivery.begin_close

    def search_late(self):
        has_begun_closing.wait(PATIENCE_S)
        return search(self)

    def begin_close_first(self, *given):
        begin_close(self, *given)
        has_begun_closing.set()

    monkeypatch.setattr(Spool, "find_abandoned", search_late)
    monkeypatch.setattr(Delivery, "begin_close", begin_close_first)
    caplog.clear()
    with Mauve(KEY, url=service.url, spool=spool, timeout=PATIENCE_S) as mauve:
        mauve.track("own")
    assert mauve.stats == Stats(accepted=61)
    assert files(spool) == []
    assert caplog.text == ""


def test_close_looks_again_for_what_others_left_since_the_last_search(service, client, tmp_path):
    mauve = client(spool=tmp_path)
    mauve.track("own")
    assert mauve.flush(PATIENCE_S)
    gone = Mauve(KEY, url=DEAD, spool=tmp_path, flush_interval=60)
    gone.track("left")
    gone.close(0)
    assert mauve.close(PATIENCE_S)
    assert names(service) == ["own", "left"]


@pytest.mark.parametrize(("count", "said"), [(1, "1 item stays in the spool"), (3, "3 items stay in the spool")])
def test_what_stays_in_the_spool_is_one_log_line(service, client, tmp_path, caplog, count, said):
    service.answer = (402, {}, None)
    mauve = client(spool=tmp_path)
    for number in range(count):
        mauve.track(str(number))
    assert not mauve.close(0.2)
    assert not mauve.close(0.2)
    assert [str(tmp_path) in line for line in caplog.messages if said in line] == [True]


def test_files_that_close_had_no_time_for_are_in_that_line(service, client, tmp_path, caplog):
    service.answer = (402, {}, None)
    spool = left_by(100, tmp_path, 1, spool_max_bytes=100_000)  # several files
    count = len(files(spool))
    caplog.clear()
    mauve = client(spool=spool, max_queue=10)
    eventually(lambda: mauve.stats.queued > 0)
    assert not mauve.close(0)
    (line,) = [line for line in caplog.messages if "in the spool" in line]
    found = re.search(r"(\d+) items and (\d+) older files stay", line)
    assert found, line
    assert 0 < int(found[2]) < count  # The others have been read: their items are the first number.


def test_items_on_disk_beyond_the_memory_are_all_sent_in_order(service, client, tmp_path):
    service.answers = [(503, {"retry-after": "1"}, None)]
    mauve = client(spool=tmp_path, max_queue=10, batch_size=4)
    for number in range(200):
        mauve.track(str(number))
        assert total(mauve.stats) == number + 1
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats.accepted == 200
    assert list(dict.fromkeys(names(service))) == [str(number) for number in range(200)]
    assert files(tmp_path) == []


def test_a_full_spool_drops_the_oldest_and_stays_within_its_limit(service, client, tmp_path):
    dropped = []
    options = {"url": DEAD, "spool": tmp_path, "spool_max_bytes": 100_000, "max_queue": 20}
    mauve = client(on_drop=lambda item, reason: dropped.append(item["name"]), **options)
    for number in range(2000):
        mauve.track(str(number))
        if number % 100 == 0:
            assert sum(path.stat().st_size for path in files(tmp_path) if path.suffix == ".items") <= 100_000
    stats = mauve.stats
    assert total(stats) == 2000
    assert stats.dropped == len(dropped) > 1000
    assert stats.queued > 100
    assert dropped[:50] == sorted(dropped[:50], key=int)


def test_one_limit_bounds_events_and_subscriptions_together(client, tmp_path):
    mauve = client(url=DEAD, spool=tmp_path, spool_max_bytes=100_000)
    for number in range(1000):
        mauve.track("event")
        mauve.subscription(id=str(number), status="active", mrr=1, currency="eur")
    kept = {kind: sum(path.stat().st_size for path in tmp_path.rglob(f"*{kind}*/*.items")) for kind in SPOOLED}
    assert sum(kept.values()) <= 100_000
    assert kept["events"] > 80_000
    assert kept["objects"] > 10_000


def test_a_torn_last_line_is_ignored_and_the_rest_is_sent(service, client, tmp_path):
    gone = client(url=DEAD, spool=tmp_path)
    for number in range(3):
        gone.track(str(number))
    gone.close(0)
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    mauve = client(spool=tmp_path)
    eventually(lambda: mauve.stats.accepted == 2)
    assert names(service) == ["0", "1"]
    assert mauve.close()
    assert files(tmp_path) == []


@pytest.mark.parametrize("damage", [lambda text: text[:90] + b"#" + text[91:], lambda text: b"\0" * 5000])
def test_a_corrupt_file_is_set_aside_and_logged_and_new_items_are_sent(service, client, tmp_path, caplog, damage):
    gone = client(url=DEAD, spool=tmp_path)
    for number in range(3):
        gone.track(str(number))
    gone.close(0)
    (path,) = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    mauve = client(spool=tmp_path)
    eventually(lambda: any(each.suffix == ".corrupt" for each in files(tmp_path)))
    mauve.track("new")
    assert mauve.flush(PATIENCE_S)
    assert "new" in names(service)
    eventually(lambda: ".corrupt" in caplog.text)
    assert total(mauve.stats) - mauve.stats.accepted == mauve.stats.dropped > 0


def left_by(count, folder, clients, **options):
    """Leave items in a spool as so many processes would that were killed."""
    for _ in range(clients):
        gone = Mauve(KEY, url=DEAD, spool=folder / "one", flush_interval=60, **options)
        for number in range(count):
            gone.track(str(number), props={"text": "x" * 50})
        gone.close(0)
        assert gone.stats.dropped == 0
        (path,) = (folder / "one").iterdir()  # elsewhere, so that the next does not adopt it
        (folder / "all").mkdir(exist_ok=True)
        path.rename(folder / "all" / path.name)
    return folder / "all"


def test_what_others_left_takes_no_room_from_the_items_of_a_process(client, tmp_path):
    dropped = []
    spool = left_by(400, tmp_path, 4, spool_max_bytes=100_000)
    on_drop = lambda item, reason: dropped.append(item)  # noqa: E731
    mauve = client(url=DEAD, spool=spool, spool_max_bytes=100_000, max_queue=10, on_drop=on_drop)
    eventually(lambda: mauve.stats.queued > 0)
    for _ in range(400):
        mauve.track("own", props={"text": "x" * 50})
    assert dropped == []
    assert mauve.stats.dropped == 0
    left = [len(path.read_bytes().splitlines()) for path in files(spool) if path.suffix == ".items"]
    assert sum(left) == 5 * 400


def test_everything_that_others_left_is_sent_whatever_the_limit(service, client, tmp_path):
    spool = left_by(300, tmp_path, 4, spool_max_bytes=100_000)
    mauve = client(spool=spool, spool_max_bytes=20_000, max_queue=10)
    eventually(lambda: mauve.stats.accepted == 1200)
    assert mauve.stats.dropped == 0
    assert mauve.close()
    assert files(spool) == []


def test_a_full_spool_drops_one_item_for_each_new_one(client, tmp_path):
    dropped = []
    mauve = client(url=DEAD, spool=tmp_path, spool_max_bytes=1_000_000, on_drop=lambda item, _: dropped.append(item))
    while not dropped:
        mauve.track("event")
    for number in range(100):
        mauve.track("event")
        assert len(dropped) <= number + 3


def test_held_events_that_fill_the_spool_leave_room_for_objects(service, client, tmp_path):
    service.answer = lambda items: (402, {}, None) if "name" in items[0] else accept(items)
    mauve = client(spool=tmp_path, spool_max_bytes=50_000)
    while not mauve.stats.dropped:
        mauve.track("held")
    dropped = mauve.stats.dropped
    for number in range(10):
        mauve.subscription(id=str(number), status="active", mrr=1, currency="eur")
    eventually(lambda: mauve.stats.accepted == 10)
    assert mauve.stats.dropped == dropped


def test_a_file_that_cannot_be_read_now_is_read_later(service, client, tmp_path, monkeypatch, caplog):
    is_broken = True
    original = Path.open

    def fail(path, *arguments, **options):
        if is_broken and path.suffix == ".items":
            raise OSError(24, "too many open files")
        return original(path, *arguments, **options)

    mauve = client(url=service.url, spool=tmp_path, max_queue=5, flush_interval=60)
    for number in range(5):
        mauve.track(str(number))  # in memory, and the queue is full: the rest is only on disk
    monkeypatch.setattr(Path, "open", fail)
    for number in range(5, 50):
        mauve.track(str(number))
    eventually(lambda: "could not read the spool; retrying" in caplog.text)
    assert not mauve.flush(0.2)
    assert total(mauve.stats) == 50
    is_broken = False
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats.accepted == 50
    assert mauve.stats.dropped == 0
    assert not [path for path in files(tmp_path) if path.suffix == ".corrupt"]


def test_a_file_that_cannot_be_adopted_now_is_adopted_later(service, tmp_path, monkeypatch):
    spool = left_by(20, tmp_path, 1)
    is_broken = True
    original = Path.read_bytes

    def fail(path):
        if is_broken:
            raise OSError(24, "too many open files")
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    clock = ManualClock()
    mauve = Mauve(KEY, url=service.url, spool=spool, _clock=clock)
    mauve.track("own")
    eventually(lambda: clock.advance(1) or mauve.stats.accepted == 1)
    is_broken = False
    eventually(lambda: clock.advance(1) or mauve.stats.accepted == 21)
    mauve.close(0)
    assert files(spool) == []


def test_a_client_closed_while_it_adopts_leaves_everything_to_the_next(service, client, tmp_path, monkeypatch):
    spool = left_by(20, tmp_path, 1)
    has_begun, may_go_on = threading.Event(), threading.Event()
    original = Path.read_bytes

    def wait(path):
        has_begun.set()
        may_go_on.wait(PATIENCE_S)
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", wait)
    first = client(spool=spool)
    assert has_begun.wait(PATIENCE_S)
    first.close(0)
    may_go_on.set()
    eventually(lambda: all(each.name != "mauve-delivery" for each in threading.enumerate()))
    assert total(first.stats) == 0
    second = client(spool=spool)
    eventually(lambda: second.stats.accepted == 20)


def test_only_the_line_that_was_damaged_is_set_aside(service, client, tmp_path, caplog):
    gone = client(url=DEAD, spool=tmp_path)
    for number in range(30):
        gone.track(str(number))
    gone.close(0)
    (path,) = files(tmp_path)
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)
    mauve = client(spool=tmp_path)
    eventually(lambda: mauve.stats == Stats(accepted=29, dropped=1))
    assert names(service) == [str(number) for number in range(1, 30)]
    mauve.close()
    (aside,) = files(tmp_path)
    assert (aside.suffix, len(aside.read_bytes().splitlines())) == (".corrupt", 1)
    eventually(lambda: "damaged" in caplog.text)


def test_folders_left_without_a_name_are_removed(service, client, tmp_path):
    old, new = tmp_path / ".new-old", tmp_path / ".new-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (1, 1))
    client(spool=tmp_path)
    eventually(lambda: not old.exists())
    assert new.exists()


def test_items_of_another_key_are_not_sent_but_reported(service, client, tmp_path, caplog):
    gone = client("sk_live_of_another_app", url=DEAD, spool=tmp_path)
    gone.track("foreign")
    gone.close(0)
    mauve = client(spool=tmp_path)
    mauve.track("own")
    assert mauve.flush(PATIENCE_S)
    assert names(service) == ["own"]
    eventually(lambda: "another key" in caplog.text)


def test_a_disk_that_cannot_be_written_leaves_items_in_memory(service, client, tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    mauve = client(spool=blocked / "spool")
    mauve.track("seen")
    assert mauve.flush(PATIENCE_S)
    assert mauve.stats == Stats(accepted=1)
    assert "only in memory" in caplog.text


def test_spooled_items_expire_by_the_time_they_were_queued(service, tmp_path):
    with Mauve(KEY, url=DEAD, spool=tmp_path, timeout=0.2, _clock=ManualClock()) as gone:
        gone.track("old")
        gone.payment(id="p", amount=1, currency="eur")
        gone.close(0)
    clock = ManualClock(1_700_000_000 + 6 * 86400 + 23 * 3600 + 1)
    mauve = Mauve(KEY, url=service.url, spool=tmp_path, _clock=clock)
    eventually(lambda: clock.advance(0.1) or mauve.stats.accepted == 1)
    assert mauve.stats.expired == 1
    assert names(service) == ["payment"]
    mauve.close(0)


steps = st.lists(
    st.tuples(st.sampled_from(["add", "send", "hold", "halve", "restart"]), st.integers(1, 30)), max_size=40
)


def adopt(outbox):
    """Take over what was left, as the delivery thread does; return how many items that were."""
    before = len(outbox)
    while outbox.wants_more and outbox.spool.find_abandoned():
        outbox.spool.attach(outbox.spool.load_abandoned())
    return len(outbox) - before


def answer(outbox, step):
    """Send a batch; return what was accepted."""
    batch, _ = outbox.take_batch(0, 0)
    if step == "send":
        outbox.settle(batch)
        return batch
    if step == "hold" or not batch:
        outbox.hold(0)
    else:
        outbox.halve(batch)
    return []


@given(steps, st.integers(1, 20), st.integers(2_000, 20_000))
def test_every_item_leaves_the_spool_exactly_once_whatever_happens(tmp_path_factory, schedule, queue_max, bytes_max):
    root = tmp_path_factory.mktemp("spool")
    opened = lambda: Outbox("/v1/events", queue_max, 10, Spool(root, "events", bytes_max))  # noqa: E731
    outbox, added, abandoned, left = opened(), 0, 0, []
    for step, count in schedule:
        if step == "add":
            for _ in range(count):
                left += outbox.add(Entry(b'{"n":%d}' % added + b" " * 60, 0, does_expire=False))
                added += 1
        elif step == "restart":
            abandoned += len(outbox)
            outbox.clear()
            outbox.spool.close()
            outbox = opened()
        else:
            left += answer(outbox, step)
        abandoned -= adopt(outbox)
        assert len(outbox) + len(left) + abandoned == added
    while len(outbox) or adopt(outbox):
        left += answer(outbox, "send")
    assert sorted({entry.body for entry in left}) == sorted(entry.body for entry in left)
    assert len(left) == added
    outbox.spool.close()
    assert files(root) == []


FIXTURES = Path(__file__).parents[2] / "fixtures/spool"
CASES = sorted(path.parent for path in FIXTURES.glob("*/expected.json"))


def test_folders_begin_with_the_digits_of_their_key(tmp_path):
    for key, digits in json.loads((FIXTURES / "keys.json").read_text()).items():
        with Mauve(key, url=DEAD, spool=tmp_path / key, timeout=0) as mauve:
            mauve.track("seen")
        assert [path.name.partition("-")[0] for path in (tmp_path / key).iterdir()] == [digits]


def test_there_are_shared_cases():
    assert len(CASES) >= 10


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_a_spool_in_the_shared_format_is_sent_as_both_libraries_agree(service, client, tmp_path, case):
    expected = json.loads((case / "expected.json").read_text())
    digits = hashlib.sha256(KEY.encode()).hexdigest()[:16]
    shutil.copytree(case, tmp_path / f"{digits}-{expected['kind']}-{'0' * 32}")
    dropped = []
    clock = ManualClock(expected["now"] / 1000)
    mauve = client(spool=tmp_path, _clock=clock, on_drop=lambda item, reason: dropped.append(item))
    wanted = Stats(accepted=len(expected["sent"]), dropped=expected["dropped"], expired=expected["expired"])
    eventually(lambda: mauve.stats == wanted)
    sent = service.items(f"/v1/{expected['kind']}")
    assert [{name: value for name, value in item.items() if name != "sent_at"} for item in sent] == expected["sent"]
    eventually(lambda: len(dropped) == expected["dropped"])
    eventually(lambda: not list(tmp_path.rglob("*.items")))


def test_a_damaged_item_reaches_on_drop_if_it_can_be_read(service, client, tmp_path):
    dropped = []
    gone = client(url=DEAD, spool=tmp_path)
    gone.track("seen", id="an id")
    gone.track("sound")
    gone.close(0)
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"an id", b"no id"))
    mauve = client(spool=tmp_path, on_drop=lambda item, reason: dropped.append((item["id"], reason)))
    eventually(lambda: mauve.stats == Stats(accepted=1, dropped=1))
    eventually(lambda: dropped == [("no id", "the spool was damaged")])


def test_a_number_is_not_appended_to_one_that_a_crash_cut_off(service, client, tmp_path):
    gone = client(url=DEAD, spool=tmp_path)
    for number in range(30):
        gone.track(str(number))
    gone.close(0)
    (path,) = files(tmp_path)
    path.with_suffix(".done").write_bytes(b"0\n1")
    service.answers, service.answer = [accept], (402, {}, None)
    next_one = client(spool=tmp_path, batch_size=1)
    eventually(lambda: len(service.requests) == 2)
    next_one.close(0)
    assert path.with_suffix(".done").read_bytes() == b"0\n1\n"
    assert names(service)[:2] == ["1", "2"]
