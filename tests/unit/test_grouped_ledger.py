import asyncio
import threading

import pytest

from mauve.stores import StoreUnavailableError
from mauve.stores.ledger import Entry, Outcome, Payment
from mauve.stores.ledger.group_commit import GROUP_ROWS_MAX, WAITING_ENTRIES_MAX, GroupedLedger
from mauve.stores.ledger.reader import LedgerReader
from mauve.stores.ledger.writer import LedgerWriter
from mauve.stores.sql.database import Database, sqlite_url
from mauve.stores.sql.migrate import LEDGER, migrate
from support.ledger_entries import a_version, totals
from support.service import PATIENCE_S

NOW = 1_800_000_000_000


class GatedWriter:
    """A ledger in memory whose transactions last until the gate is opened."""

    def __init__(self):
        self.groups = []
        self.threads = set()
        self.closed = False
        self.began = threading.Event()
        self.gate = threading.Event()
        self.error = None

    def record(self, entries):
        self.threads.add(threading.get_ident())
        self.began.set()
        assert self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.groups.append(list(entries))
        return [[Outcome.ACCEPTED for _ in entry.payments] for entry in entries]

    def close(self):
        self.threads.add(threading.get_ident())
        self.closed = True


def an_entry(payments=0, events=b""):
    payment = Payment("org_1", "proj_1", "inv_1", b"", None, 1, "eur", True, None, NOW, NOW, b"")  # noqa: FBT003
    return Entry([payment] * payments, events=events)


async def begun(writer):
    """Return when a transaction is in progress."""
    assert await asyncio.to_thread(writer.began.wait, PATIENCE_S)
    writer.began.clear()


async def waiting(ledger, *entries, org_id="org_1"):
    """Submit entries, and return while they wait."""
    tasks = [asyncio.create_task(ledger.record(entry, org_id)) for entry in entries]
    await asyncio.sleep(0)
    return tasks


def run(scenario):
    async def main():
        writer = GatedWriter()
        ledger = GroupedLedger(writer)
        try:
            await scenario(ledger, writer)
        finally:
            writer.gate.set()
            await ledger.close()

    asyncio.run(main())


def test_entries_that_arrive_during_a_transaction_form_the_next_group_in_order():
    async def scenario(ledger, writer):
        first = await waiting(ledger, an_entry(1))
        await begun(writer)
        entries = [an_entry(number % 3, events=str(number).encode()) for number in range(5)]
        later = await waiting(ledger, *entries)
        writer.gate.set()
        assert await asyncio.gather(*first, *later) == [
            [Outcome.ACCEPTED] * len(entry.payments) for entry in [an_entry(1), *entries]
        ]
        assert writer.groups == [[an_entry(1)], entries]

    run(scenario)


def test_one_thread_other_than_the_event_loops_does_all_the_work():
    async def scenario(ledger, writer):
        writer.gate.set()
        for _ in range(5):
            await ledger.record(an_entry(1))
        await ledger.close()
        assert len(writer.threads) == 1
        assert threading.get_ident() not in writer.threads

    run(scenario)


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([0] * (GROUP_ROWS_MAX + 5), [GROUP_ROWS_MAX, 5]),
        ([GROUP_ROWS_MAX // 2] * 5, [2, 2, 1]),
        ([GROUP_ROWS_MAX - 1, 0, 1], [2, 1]),
        ([GROUP_ROWS_MAX + 1, 1], [1, 1]),
        ([1, GROUP_ROWS_MAX + 1, 1], [1, 1, 1]),
    ],
)
def test_a_group_is_limited_and_an_oversized_entry_is_recorded_alone(sizes, groups):
    async def scenario(ledger, writer):
        first = await waiting(ledger, an_entry())
        await begun(writer)
        later = await waiting(ledger, *(an_entry(size) for size in sizes))
        writer.gate.set()
        await asyncio.gather(*first, *later)
        assert [len(group) for group in writer.groups] == [1, *groups]

    run(scenario)


def test_versions_of_subscriptions_fill_a_group_as_payments_do():
    half = GROUP_ROWS_MAX // 2
    entries = [Entry(subscriptions=[a_version()] * half), an_entry(half), an_entry(1)]

    async def scenario(ledger, writer):
        first = await waiting(ledger, an_entry())
        await begun(writer)
        later = await waiting(ledger, *entries)
        writer.gate.set()
        await asyncio.gather(*first, *later)
        assert [len(group) for group in writer.groups] == [1, 2, 1]

    run(scenario)


def numbered(count, payments, name):
    return [an_entry(payments, events=b"%s %d" % (name, number)) for number in range(count)]


@pytest.mark.parametrize("size", [1, 100, GROUP_ROWS_MAX // 2])
def test_an_entry_after_a_long_queue_of_another_organization_is_in_the_next_group(size):
    line, entry = numbered(300, size, b"a"), an_entry(1, events=b"b")

    async def scenario(ledger, writer):
        tasks = await waiting(ledger, an_entry())
        await begun(writer)
        tasks += await waiting(ledger, *line)
        tasks += await waiting(ledger, entry, org_id="org_2")
        writer.gate.set()
        await asyncio.gather(*tasks)
        assert entry in writer.groups[1]
        assert [one for group in writer.groups[1:] for one in group if one is not entry] == line

    run(scenario)


def test_organizations_share_a_group_by_rows_and_keep_their_order():
    half = GROUP_ROWS_MAX // 2
    large, small = numbered(3, half, b"a"), numbered(half + 10, 1, b"b")

    async def scenario(ledger, writer):
        tasks = await waiting(ledger, an_entry())
        await begun(writer)
        tasks += await waiting(ledger, *large)
        tasks += await waiting(ledger, *small, org_id="org_2")
        writer.gate.set()
        await asyncio.gather(*tasks)
        assert writer.groups[1] == [large[0], *small[:half]]
        later = [entry for group in writer.groups[2:] for entry in group]
        assert [entry for entry in later if entry in large] == large[1:]
        assert [entry for entry in later if entry in small] == small[half:]

    run(scenario)


def test_an_organization_left_out_of_a_group_is_first_in_the_next():
    entry = an_entry(GROUP_ROWS_MAX, events=b"b")

    async def scenario(ledger, writer):
        tasks = await waiting(ledger, an_entry())
        await begun(writer)
        tasks += await waiting(ledger, *numbered(300, 10, b"a"))
        tasks += await waiting(ledger, entry, org_id="org_2")
        writer.gate.set()
        await asyncio.gather(*tasks)
        assert writer.groups[2] == [entry]

    run(scenario)


def test_a_failed_group_affects_no_others():
    large = numbered(5, GROUP_ROWS_MAX // 2, b"a")
    entry = an_entry(1, events=b"b")

    async def scenario(ledger, writer):
        failing = await waiting(ledger, *large[:1])
        await begun(writer)
        later = await waiting(ledger, *large[1:])
        later += await waiting(ledger, entry, org_id="org_2")
        errors = [StoreUnavailableError("database is locked")]
        record = writer.record
        writer.record = lambda entries: failed_once(errors, record, entries)
        writer.gate.set()
        found = await asyncio.gather(*failing, *later, return_exceptions=True)
        told = {id(one): outcome for one, outcome in zip([*large, entry], found, strict=True)}
        recorded = [one for group in writer.groups for one in group]
        assert not errors
        for one in [*large, entry]:
            reports_success = not isinstance(told[id(one)], Exception)
            assert reports_success == any(one is other for other in recorded)
        assert sum(isinstance(one, Exception) for one in found) == 2  # one of each organization: the first group

    def failed_once(errors, record, entries):
        if errors:
            raise errors.pop()
        return record(entries)

    run(scenario)


@pytest.mark.parametrize("error", [StoreUnavailableError("the disk is full"), ValueError("a secret")])
def test_every_entry_of_a_failed_group_gets_the_error_and_no_others_do(error):
    async def scenario(ledger, writer):
        failing = await waiting(ledger, an_entry(), an_entry())
        await begun(writer)
        later = await waiting(ledger, an_entry(1))
        writer.error = error
        writer.gate.set()
        found = await asyncio.gather(*failing, return_exceptions=True)
        assert [type(one) for one in found] == [StoreUnavailableError] * 2
        assert found[0] is not found[1]
        assert all(one.__cause__ is error for one in found)
        assert {str(one) for one in found} <= {"the disk is full", "unexpected ValueError"}
        writer.error = None
        await asyncio.gather(*later, return_exceptions=True)
        assert await ledger.record(an_entry(1)) == [Outcome.ACCEPTED]

    run(scenario)


def test_more_than_the_queue_holds_is_refused_at_once():
    async def scenario(ledger, writer):
        first = await waiting(ledger, an_entry())
        await begun(writer)
        queued = await waiting(ledger, *(an_entry() for _ in range(WAITING_ENTRIES_MAX)))
        with pytest.raises(StoreUnavailableError, match="too many"):
            await ledger.record(an_entry())
        writer.gate.set()
        await asyncio.gather(*first, *queued)
        assert await ledger.record(an_entry(1)) == [Outcome.ACCEPTED]

    run(scenario)


def test_a_caller_that_stops_waiting_affects_no_others():
    async def scenario(ledger, writer):
        in_flight = await waiting(ledger, an_entry(1), an_entry(2))
        await begun(writer)
        queued = await waiting(ledger, an_entry(3), an_entry(4))
        for task in (in_flight[0], queued[0]):
            task.cancel()
        await asyncio.sleep(0)
        writer.gate.set()
        assert await asyncio.gather(in_flight[1], queued[1]) == [[Outcome.ACCEPTED] * 2, [Outcome.ACCEPTED] * 4]
        assert [[len(entry.payments) for entry in group] for group in writer.groups] == [[1, 2], [4]]

    run(scenario)


def test_closing_records_waiting_entries_and_accepts_no_more():
    async def scenario(ledger, writer):
        first = await waiting(ledger, an_entry())
        await begun(writer)
        later = await waiting(ledger, an_entry(1))
        closing = asyncio.create_task(ledger.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailableError, match="closed"):
            await ledger.record(an_entry())
        assert not writer.closed
        writer.gate.set()
        await closing
        assert writer.closed
        assert await asyncio.gather(*first, *later) == [[], [Outcome.ACCEPTED]]
        await ledger.close()

    run(scenario)


def test_many_concurrent_requests_are_recorded_on_a_real_ledger(tmp_path):
    database = Database(sqlite_url(tmp_path / "ledger.db"), busy_timeout_s=5)
    migrate(database, LEDGER)

    async def main():
        ledger = GroupedLedger(LedgerWriter(database))
        try:
            payment = an_entry(1).payments[0]
            outcomes = await asyncio.gather(*(ledger.record(Entry([payment])) for _ in range(300)))
        finally:
            await ledger.close()
        return outcomes

    assert asyncio.run(main()) == [[Outcome.ACCEPTED]] + [[Outcome.DUPLICATE]] * 299
    reader = LedgerReader(database)
    assert totals(reader) == [("2027-01-15", "eur", 1)]
    database.close()
