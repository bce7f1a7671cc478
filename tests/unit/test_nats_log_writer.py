"""The writer of the log on NATS answers every record in bounded time, and never stores a group twice."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from mauve.core.secret import Secret
from mauve.server import supervisor
from mauve.stores import StoreUnavailableError
from mauve.stores.log import LogFullError, LogUnavailableError
from mauve.stores.log.nats import log_writer
from mauve.stores.log.nats.log_writer import NatsLogWriter
from mauve.stores.log.nats.streams import STREAMS, subject_of
from mauve.web.http1 import listener

RECORDS = 1_000
FIRST, SECOND, THIRD = map(subject_of, STREAMS)


class Servers:
    """A connection whose servers answer with a function of the subject, or are all down."""

    is_connected = True

    def __init__(self, answer=None):
        self._answer = answer
        self.sent = []  # subject and id of each message

    def connected(self):
        if self._answer is None:
            raise StoreUnavailableError("NATS cannot be reached")
        return self

    async def request(self, subject, _message, *, timeout, headers):  # noqa: ASYNC109 - as the library has it
        assert timeout > 0
        self.sent.append((subject, headers["Nats-Msg-Id"]))
        return SimpleNamespace(data=json.dumps(await self._answer(subject)).encode())

    async def close(self):
        pass


@pytest.fixture
def clock(monkeypatch):
    """The writer's clock, which a test advances."""
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(log_writer, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return clock


async def results(servers, count=1):
    """Append records at once; return what each got."""
    writer = NatsLogWriter(Secret("nats://127.0.0.1:1"), connection=servers)
    found = await asyncio.gather(*(writer.append([b"%d" % number]) for number in range(count)), return_exceptions=True)
    await writer.close()
    return found


def an_error(code, description=""):
    return {"error": {"code": 400, "err_code": code, "description": description}}


def test_without_a_server_all_that_wait_are_refused_with_the_first_group(monkeypatch):
    monkeypatch.setattr(log_writer, "WAIT_S_MAX", 0.05)
    monkeypatch.setattr(log_writer, "LAST_ATTEMPT_S", 0.05)
    groups, packed = [], log_writer.packed
    monkeypatch.setattr(log_writer, "packed", lambda records: groups.append(records) or packed(records))
    found = asyncio.run(results(Servers(), RECORDS))
    assert {type(each) for each in found} == {LogUnavailableError}
    assert len(groups) == 1


def test_behind_slow_servers_records_are_refused_once_they_have_waited_too_long(clock):
    async def slowly(_subject):
        clock.now_s += 3
        return {"stream": "any", "seq": 1}

    servers = Servers(slowly)
    found = asyncio.run(results(servers, RECORDS))
    assert len(servers.sent) == 3, "after 9 s nothing is sent any more"
    assert [type(each) for each in found] == [int] * 192 + [LogUnavailableError] * (RECORDS - 192)


@pytest.mark.parametrize("is_silent", [False, True])
def test_closing_does_not_wait_for_servers_that_are_away(monkeypatch, is_silent):
    monkeypatch.setattr(log_writer, "FINISH_S_MAX", 0.05)

    async def main():
        servers = Servers((lambda _subject: asyncio.Event().wait()) if is_silent else None)
        servers.close = asyncio.Event().wait
        monkeypatch.setattr(log_writer, "DISCONNECT_S_MAX", 0.05)
        writer = NatsLogWriter(Secret("nats://127.0.0.1:1"), connection=servers)
        waiting = [writer.append([b"a"]) for _ in range(RECORDS)]
        await asyncio.sleep(0)
        async with asyncio.timeout(log_writer.WAIT_S_MAX / 2):
            await writer.close()
        assert {type(each.exception()) for each in waiting} == {LogUnavailableError}

    asyncio.run(main())


def test_closing_leaves_time_for_the_rest_of_a_stop():
    after_requests_s = vars(supervisor)["_STOP_GRACE_S"] - listener.SHUTDOWN_S_MAX
    assert after_requests_s / 2 >= log_writer.FINISH_S_MAX + log_writer.DISCONNECT_S_MAX


@pytest.mark.parametrize(
    ("code", "description"),
    [
        (0, ""),
        (10008, "JetStream system temporarily unavailable"),
        (10023, "insufficient resources"),
        (10077, "no space left on device"),
        (10077, "store is closed"),
        (10158, "duplicate message id is in process"),
        (99999, "something of a later version"),
    ],
)
def test_a_group_that_may_be_stored_is_sent_again_to_the_same_stream_with_the_same_id(code, description):
    answers = iter([an_error(code, description), {"stream": "any", "seq": 7}])

    async def answer(_subject):
        return next(answers)

    servers = Servers(answer)
    (found,) = asyncio.run(results(servers))
    assert isinstance(found, int)
    first, again = servers.sent
    assert first == again


@pytest.mark.parametrize(
    ("code", "description"),
    [
        (10059, "stream not found"),
        (10060, "expected stream does not match"),
        (10054, "message size exceeds maximum allowed"),
        (10077, "maximum bytes exceeded"),
        (10047, "insufficient storage resources available"),
    ],
)
def test_a_group_that_was_refused_goes_to_another_stream(code, description):
    async def answer(subject):
        return an_error(code, description) if subject == FIRST else {"stream": "any", "seq": 7}

    servers = Servers(answer)
    (found,) = asyncio.run(results(servers))
    assert isinstance(found, int)
    assert [subject for subject, _ in servers.sent] == [FIRST, SECOND]


def test_only_full_streams_make_the_log_full():
    async def answer(_subject):
        return an_error(10077, "maximum bytes exceeded")

    servers = Servers(answer)
    (found,) = asyncio.run(results(servers))
    assert isinstance(found, LogFullError)
    assert [subject for subject, _ in servers.sent] == [FIRST, SECOND, THIRD]
