"""The power is cut repeatedly under load, for log, ledger and warehouse together; nothing acknowledged is lost.

Needs root and a loop device. The processes and the mount belong to the test.

Proves: power-cuts, distinct-counts.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from support.power_box import PowerBox, power_box, reason_for_no_box
from support.service import PATIENCE_S, Service, clean_environment, cut_batch, eventually, fixed_ports, is_alive, start
from support.traffic import Traffic, started_again

LIFE = Path(__file__).parents[1] / "support" / "life_on_disk.py"
WAREHOUSE = LIFE.with_name("warehouse_program.py")
BATCHES_OF_A_LIFE_MAX = 60
LIVES_OF_A_BOX = 50  # then a new one, because everything stored is read after every cut


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where a box may be mounted."""
    home = tmp_path_factory.mktemp("boxes")
    if reason := reason_for_no_box(home):
        pytest.skip(reason)
    return home


class Life:
    """A process that works on a box until its power is cut."""

    def __init__(self, data: Path, number: int) -> None:
        self.number = number
        self.sent: set[int] = set()
        self.acked: set[int] = set()
        self.found: dict | None = None
        self.has_found = threading.Event()
        self._is_cut = threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, str(LIFE), str(data), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_environment(PYTHONPATH=str(LIFE.parents[1])),
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def begin(self) -> None:
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def cut(self, box: PowerBox) -> None:
        """Cut its power. Ignore its output from now on, for the reason given in `power_box`."""
        self._is_cut.set()
        box.cut()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        self._process.stdin.close()
        self._process.stdout.close()

    def _listen(self) -> None:
        for line in self._process.stdout:
            if not line.endswith(b"\n"):
                return  # It was killed in the middle of a line.
            word, _, rest = line.partition(b" ")
            if word == b"found":
                self.found = json.loads(rest)
                self.has_found.set()
            elif word == b"sent":
                self.sent.add(int(rest))
            elif not self._is_cut.is_set():
                self.acked.add(int(rest))


def check(found: dict, lives: list[Life]) -> None:
    """Compare what is stored with what was sent in earlier lives."""
    check_events(found, lives)
    check_money(found, lives)


def check_events(found: dict, lives: list[Life]) -> None:
    sent = {event["id"]: event for life in lives for number in life.sent for event in events_of(life, number)}
    acked = {event["id"] for life in lives for number in life.acked for event in events_of(life, number)}
    counted = [row for row in found["rows"] if row[3]]
    ids = Counter(row[0] for row in counted)
    assert acked <= ids.keys(), f"acknowledged and lost: {sorted(acked - ids.keys())[:5]}"
    assert all(times == 1 for times in ids.values()), "counted twice"
    assert len({row[4] for row in found["rows"]}) == len(found["rows"]), "stored twice"
    assert {row[0] for row in found["rows"]} <= ids.keys(), "a repeat of nothing"
    for id_, name, user, *_ in found["rows"]:
        assert (sent[id_]["name"], sent[id_]["user"]) == (name, user)
    by_name = Counter(row[1] for row in counted)
    assert dict(found["names"]) == dict(found["names_of_rows"]) == dict(by_name)
    users = {row[2] for row in counted}
    assert found["mau"] == len(users)
    assert sum(count for *_, count in found["dau"]) >= len(users)
    assert found["usage"] == len(counted) + len(found["payments"])


def check_money(found: dict, lives: list[Life]) -> None:
    payments = dict(found["payments"])
    acked, sent = payments_of(lives, "acked"), payments_of(lives, "sent")
    assert acked.items() <= payments.items() <= sent.items()
    assert sum(int(total) for (total,) in found["totals"]) == sum(payments.values())


def events_of(life: Life, number: int) -> list[dict]:
    return cut_batch(life.number, number)["events"]


def payments_of(lives: list[Life], which: str) -> dict[str, int]:
    batches = [cut_batch(life.number, number) for life in lives for number in getattr(life, which)]
    return {batch["payment"]: batch["amount"] for batch in batches if batch["payment"]}


def cut_in_a_loop(box: PowerBox, cuts: int, rng: random.Random) -> int:
    """Cut the power of a box repeatedly; return how many batches were acknowledged."""
    data = box.path / "data"
    lives: list[Life] = []
    life = following = Life(data, 0)
    try:
        for number in range(cuts + 1):
            life, following = following, Life(data, number + 1)
            life.begin()
            is_last = number == cuts
            if is_last or rng.random() < 0.85:
                assert life.has_found.wait(PATIENCE_S)
                check(life.found, lives)
            lives.append(life)
            if not is_last:
                live_a_while(life, rng)
                if rng.random() < 0.5:
                    box.write_back_some(rng)
                life.cut(box)
            life.end()
            if not is_last:
                box.switch_on()
    finally:
        for each in (life, following):
            each.end()
    return sum(len(life.acked) for life in lives)


def live_a_while(life: Life, rng: random.Random) -> None:
    """Wait for some time of the life: its start, the middle of its work, or later."""
    batches, pause_s = rng.randrange(1, BATCHES_OF_A_LIFE_MAX), rng.uniform(0, 0.5)
    if life.has_found.is_set():
        eventually(lambda: len(life.acked) >= batches)
    time.sleep(pause_s)  # Nothing depends on how much is done meanwhile.


@pytest.mark.prove
@pytest.mark.timeout(3_600)
def test_after_power_cuts_each_acknowledged_event_is_counted_exactly_once_and_money_is_exact(
    home, rounds, show_progress
):
    cuts = rounds(27, 1000)
    rng = random.Random(20261115)
    acked = 0
    for first in range(0, cuts, LIVES_OF_A_BOX):
        with power_box(home / f"box-{first}") as box:
            acked += cut_in_a_loop(box, min(LIVES_OF_A_BOX, cuts - first), rng)
        show_progress(f"{min(first + LIVES_OF_A_BOX, cuts):,} of {cuts:,} cuts, {acked:,} batches acknowledged")
    assert acked > 10 * cuts, "the load was real"


def cut_the_service(box: PowerBox, service: Service, traffic: Traffic) -> None:
    children = service.child_pids().values()
    traffic.is_doubtful.set()
    box.cut()
    for pid in (service.process.pid, *children):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    service.process.wait()
    service.process.stdout.close()
    eventually(lambda: not any(map(is_alive, children)))


@pytest.mark.prove
@pytest.mark.timeout(3_600)
def test_the_whole_service_continues_after_power_cuts_with_everything_it_acknowledged(home, rounds, show_progress):
    cuts = rounds(3, 100)
    rng = random.Random(20261115)
    with power_box(home / "service") as box:
        service = start(box.path / "data", "--workers", "2", *fixed_ports())
        try:
            with Traffic(service, is_disk_sound=False) as traffic:
                for number in range(cuts):
                    acked = len(traffic.acked)
                    eventually(lambda acked=acked: len(traffic.acked) > acked + 10)
                    time.sleep(rng.uniform(0, 1.5))
                    cut_the_service(box, service, traffic)
                    box.switch_on()
                    traffic.is_doubtful.clear()
                    service = started_again(service, "--workers", "2")
                    show_progress(f"{number + 1} of {cuts} cuts, {len(traffic.acked):,} batches acknowledged")
            figures = traffic.figures_when_loaded(service)
            assert service.stop() == 0
            traffic.check(service, figures)
        finally:
            if service.process.poll() is None:
                service.stop()
            service.process.stdout.close()


def events_left_after_a_cut(home: Path, *setting: str) -> int:
    """Load and merge, cut the power when only the merged part is left, and count the rows afterwards."""
    environment = clean_environment(PYTHONPATH=str(LIFE.parents[1]))
    with power_box(home) as box:
        command = [sys.executable, str(WAREHOUSE), str(box.path / "warehouse")]
        merging = subprocess.Popen([*command, "merge", *setting], stdout=subprocess.PIPE, env=environment)
        try:
            assert merging.stdout.readline() == b"merged\n"
            box.sync_a_new_file()
            box.cut()
        finally:
            merging.kill()
            merging.wait()
            merging.stdout.close()
        box.switch_on()
        told = subprocess.run([*command, "tell"], env=environment, capture_output=True, check=True).stdout
    return json.loads(told.splitlines()[-1])["from_rows"]


def test_merged_parts_of_the_warehouse_survive_a_power_cut(home):
    """The rows would be lost: their sources are removed after the merge, and the log is trimmed."""
    assert events_left_after_a_cut(home / "merged") == 160


def test_a_warehouse_that_does_not_sync_merged_parts_is_detected(home):
    assert events_left_after_a_cut(home / "unsynced", "min_rows_to_fsync_after_merge = 0") == 0
