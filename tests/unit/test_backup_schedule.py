"""When backups are due, and which of them are removed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from mauve.maintenance.backup_schedule import BackupState, Made, Schedule, is_late
from mauve.maintenance.errors import MaintenanceRefusedError
from mauve.maintenance.stored_backups import backup_name, backups_in, created_at_of, names_to_remove, newest_in
from mauve.server.scheduled_backups import ScheduledBackups
from mauve.stores.backups import StoredBackup
from mauve.stores.backups.disk import FolderBackupStore
from support.clocks import ManualClock

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAILY = Schedule("s3://bucket/here", DAY_MS)
OURS, THEIRS = "0a" * 16, "0b" * 16


class Service:
    """A service that is restarted at will; its state is stored, its backups succeed or fail as told."""

    def __init__(self, clock):
        self.clock = clock
        self.stored = msgspec.json.encode(BackupState())
        self.runs = 0
        self.reason = ""
        self.disk_is_full = lambda: False
        self.start()

    def start(self, schedule=DAILY):
        self.registry = CollectorRegistry()
        self._backups = ScheduledBackups(
            schedule,
            self._run,
            self.clock,
            load=lambda: msgspec.json.decode(self.stored, type=BackupState),
            save=self._save,
            registry=self.registry,
        )

    def is_due(self):
        before = self.runs
        self._backups.back_up_if_due()
        return self.runs > before

    def metric(self, name):
        return self.registry.get_sample_value(name)

    @property
    def state(self):
        return msgspec.json.decode(self.stored, type=BackupState)

    def _save(self, state):
        if self.disk_is_full():
            raise OSError("no space left on device")
        self.stored = msgspec.json.encode(state)

    def _run(self):
        self.runs += 1
        self.next_at_meanwhile = self.state.next_at
        if self.reason == "raise":
            raise OSError("operation not permitted")
        if self.reason == "stopping":
            return None
        return self.reason or Made("s3://bucket/here/name", 5, self.clock.now_ms())


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def service(clock):
    return Service(clock)


def test_the_first_is_made_at_once_and_the_next_after_the_interval(service, clock):
    assert service.is_due()
    clock.advance(DAY_MS - 1)
    assert not service.is_due()
    clock.advance(11 * 60_000)  # the interval and the most that it is delayed
    assert service.is_due()


def test_a_restart_neither_repeats_nor_skips_one(service, clock):
    assert service.is_due()
    service.start()
    assert not service.is_due()
    clock.advance(3 * DAY_MS)
    service.start()
    assert service.is_due()
    assert not service.is_due()


def test_failures_are_counted_and_tried_again_soon_then_hourly(service, clock):
    assert service.is_due()
    clock.advance(DAY_MS + 600_000)
    service.reason = "there is no bucket"
    waits = []
    for _ in range(6):
        assert service.is_due()
        waits.append(service.state.next_at - clock.now_ms())
        clock.advance(waits[-1] - 1)
        assert not service.is_due()
        clock.advance(1)
    limits = [minutes * 60_000 for minutes in (5, 10, 20, 40, 60, 60)]
    assert all(limit <= wait <= 1.05 * limit for wait, limit in zip(waits, limits, strict=True))
    assert service.metric("mauve_backup_failures_total") == 6
    assert service.metric("mauve_backup_age_seconds") > DAY_MS / 1000
    assert (service.state.failures, service.state.reason) == (6, "there is no bucket")
    service.reason = ""
    assert service.is_due()
    assert service.state.failures == 0
    assert service.metric("mauve_backup_age_seconds") == 0


def test_one_that_a_stop_has_ended_is_no_failure_and_due_at_the_next_start(service):
    service.reason = "stopping"
    assert service.is_due()
    assert service.metric("mauve_backup_failures_total") == 0
    service.reason = ""
    service.start()
    assert service.is_due()


def test_one_that_cannot_be_noted_is_not_repeated_at_each_check_and_noted_later(service, clock):
    """If it were, the new ones would replace all older ones."""
    service.disk_is_full = lambda: service.runs > 0
    with pytest.raises(OSError, match="no space"):
        service.is_due()
    for _ in range(100):
        clock.advance(10_000)
        with pytest.raises(OSError, match="no space"):
            service.is_due()
    assert service.runs == 1
    assert service.metric("mauve_backup_age_seconds") == 1000
    service.disk_is_full = lambda: False
    assert not service.is_due()
    assert service.state.made_at is not None


def test_none_is_begun_if_that_cannot_be_noted(service, clock):
    service.disk_is_full = lambda: True
    with pytest.raises(OSError, match="no space"):
        service.is_due()
    assert service.runs == 0
    service.disk_is_full = lambda: False
    clock.advance(5 * 60_000)
    assert service.is_due()


def test_one_that_the_service_does_not_survive_is_tried_again_after_some_minutes(service, clock):
    service.reason = "raise"
    with pytest.raises(OSError, match="not permitted"):
        service.is_due()
    assert service.next_at_meanwhile == clock.now_ms() + 5 * 60_000, "it was noted before it began"
    assert not service.is_due()
    service.start()
    assert not service.is_due()
    service.reason = ""
    clock.advance(5 * 60_000)
    assert service.is_due()


def test_none_within_two_intervals_of_the_first_try_is_late(service, clock):
    service.reason = "there is no bucket"
    assert service.is_due()
    clock.advance(2 * DAY_MS)
    assert not is_late(service.state, DAY_MS, clock.now_ms())
    assert service.is_due()
    clock.advance(1)
    assert is_late(service.state, DAY_MS, clock.now_ms())
    service.start(Schedule("s3://bucket/there", DAY_MS))
    assert service.is_due()
    assert not is_late(service.state, DAY_MS, clock.now_ms()), "a new place has its own time"


def test_another_place_is_due_at_once_and_a_shorter_interval_is_obeyed(service, clock):
    assert service.is_due()
    service.start(Schedule("s3://bucket/there", DAY_MS))
    assert service.is_due()
    service.start(Schedule("s3://bucket/there", HOUR_MS))
    assert service.is_due(), "the next time is later than any hourly schedule sets"


@given(st.integers(0, 2**42), st.booleans())
def test_a_name_tells_when_a_backup_was_created(created_at, is_encrypted):
    assert created_at_of(backup_name(created_at, OURS, is_encrypted=is_encrypted)) == created_at


@pytest.mark.parametrize("name", ["", "mauve-1.mauve", "mauve-20260631T000000000Z.mauve", "x/mauve.mauve", "b.age"])
def test_other_names_are_not_those_of_backups(name):
    assert created_at_of(name) is None
    assert backups_in([StoredBackup(name, 1)]) == []


def test_only_older_backups_beyond_the_number_are_removed():
    names = [backup_name(number * DAY_MS, OURS, is_encrypted=number % 2 == 0) for number in range(6)]
    stored = [StoredBackup(name, 1) for name in [*names, "notes.txt", "mauve.conf"]]
    assert names_to_remove(stored, names[5], 3) == [names[2], names[1], names[0]]
    assert names_to_remove(stored, names[5], 1) == names[4::-1]
    assert names_to_remove(stored, names[5], 9) == []
    assert names_to_remove(stored, names[3], 1) == names[2::-1], "a newer one of another process stays"


def test_backups_of_other_installations_neither_count_nor_go():
    theirs = [backup_name(number * DAY_MS, THEIRS, is_encrypted=False) for number in range(3)]
    ours = [backup_name(number * DAY_MS + 1, OURS, is_encrypted=False) for number in range(3)]
    nameless = "mauve-19700101T000000000Z.mauve"
    stored = [StoredBackup(name, 1) for name in [*theirs, *ours, nameless]]
    assert names_to_remove(stored, ours[2], 1) == [ours[1], ours[0]]
    assert names_to_remove(stored, theirs[2], 2) == [theirs[0]]


def test_the_newest_of_several_installations_must_be_named(tmp_path):
    store = FolderBackupStore(tmp_path)
    ours, theirs = (backup_name(DAY_MS, identity, is_encrypted=False) for identity in (OURS, THEIRS))
    (tmp_path / ours).touch()
    assert newest_in(store).name == ours
    (tmp_path / theirs).touch()
    with pytest.raises(MaintenanceRefusedError, match=f"several installations: name one of them, such as .*{theirs}"):
        newest_in(store)
