"""A worker's own HTTP: each request is answered once and in order, however it arrives, or refused and closed.

Proves: slow-clients, not-http, pipelining.
"""

import asyncio
import itertools
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mauve.core.problems import Busy
from mauve.web import head_rules
from mauve.web.body import BYTES_PER_S, DRAIN_BYTES_MAX, BodyTooLargeError, IncompleteBodyError
from mauve.web.head_rules import HEAD_BYTES_MAX, HEADERS_MAX
from mauve.web.http1.connection import HEAD_S_MAX, READ_BYTES, Connection, SharedState, begin_nothing, date_line
from mauve.web.http1.request import CACHED_HEADS_MAX, Head, HeadCache, path_of
from mauve.web.messages import Reply

BODY_BYTES_MAX = 1000
ENOUGH_BYTES = 64 * 1024 + READ_BYTES


class FakeTransport:
    """Stand in for the event loop's transport."""

    def __init__(self):
        self.sent = b""
        self.is_reading = True
        self.has_ended = False  # the server sends no more
        self.is_closed = False

    def write(self, data):
        assert not self.has_ended
        self.sent += data

    def write_eof(self):
        self.has_ended = True

    def close(self):
        self.has_ended = self.is_closed = True

    abort = close

    def is_closing(self):
        return self.is_closed

    def get_write_buffer_size(self):
        return 0

    def get_extra_info(self, name):
        return {"peername": ("192.0.2.1", 40_000)}[name]

    def pause_reading(self):
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self):
        assert not self.is_reading
        self.is_reading = True


class Client:
    """A client connected to a server that echoes requests."""

    def __init__(self, answer=None, begin=begin_nothing):
        self.asked = []
        self.shared = SharedState(answer or self.repeat, begin=begin)
        self.shared.date = date_line(0)
        self.transport = FakeTransport()
        self.connection = Connection(self.shared, asyncio.get_running_loop())
        self.connection.connection_made(self.transport)

    async def repeat(self, request):
        self.asked.append(request)
        try:
            body = await request.body(BODY_BYTES_MAX)
        except (BodyTooLargeError, IncompleteBodyError) as error:
            return Reply(400, type(error).__name__.encode())
        return Reply(200, f"{request.method} {request.path} ".encode() + body)

    async def send(self, data):
        """Send as much as the server reads."""
        for start in range(0, len(data), READ_BYTES):
            if not self.transport.is_reading:
                await soon(50)
            if not self.transport.is_reading:
                return
            piece = data[start : start + READ_BYTES]
            self.connection.get_buffer(-1)[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))
        await soon()

    async def pass_seconds(self, seconds):
        for _ in range(seconds):
            self.shared.now_s += 1
            self.connection.check_deadline()
        await soon()

    def replies(self):
        """Return the status, the body and whether the connection ends, of each reply."""
        rest, found = self.transport.sent, []
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:])
            length = int(headers.get("content-length", 0))
            found.append((int(lines[0].split()[1]), rest[:length], headers.get("connection") == "close"))
            rest = rest[length:]
        return found


async def soon(rounds=10):
    for _ in range(rounds):
        await asyncio.sleep(0)


def with_client(scenario, answer=None, begin=begin_nothing):
    async def run():
        await scenario(Client(answer, begin))

    asyncio.run(run())


def post(body, *lines, path="/a"):
    return "\r\n".join([f"POST {path} HTTP/1.1", "host: x", *lines, "", ""]).encode() + body


def sized(body, *lines, path="/a"):
    return post(body, f"content-length: {len(body)}", *lines, path=path)


def chunked(*pieces):
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return post(body + b"0\r\n\r\n", "transfer-encoding: chunked")


GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"
CLOSED = True


@settings(deadline=None)
@given(cuts=st.sets(st.integers(1, 280)))
def test_requests_may_arrive_in_any_pieces(cuts):
    stream = sized(b"one", path="/1") + GET + chunked(b"th", b"ree") + sized(b"", path="/4?x=%2F")

    async def scenario(client):
        places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
        for start, end in itertools.pairwise(places):
            await client.send(stream[start:end])
        assert client.replies() == [
            (200, b"POST /1 one", False),
            (200, b"GET /a ", False),
            (200, b"POST /a three", False),
            (200, b"POST /4 ", False),
        ]
        assert client.transport.is_reading
        assert not client.transport.has_ended

    with_client(scenario)


@settings(deadline=None)
@given(cuts=st.sets(st.integers(1, 420)))
def test_requests_with_cached_heads_are_read_like_the_first(cuts):
    """A cached head is not parsed again: its body and the requests after it must read the same."""
    bodies = [b"one", b"two", b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"six", b""]
    stream = sized(b"one") + sized(b"two") + chunked(b"a") + b"".join(map(sized, bodies)) + GET

    async def scenario(client):
        places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
        for start, end in itertools.pairwise(places):
            await client.send(stream[start:end])
        expected = [b"one", b"two", b"a", *bodies]
        assert client.replies() == [
            *((200, b"POST /a " + body, False) for body in expected),
            (200, b"GET /a ", False),
        ]

    with_client(scenario)


def test_a_cached_head_matches_in_every_byte():
    async def scenario(client):
        for path, key, body in [("/a", "k1", b"x"), ("/a", "k2", b"x"), ("/b", "k1", b"x"), ("/a", "k1", b"y")]:
            await client.send(sized(body, f"authorization: Bearer {key}", path=path))
        assert [(asked.path, asked.header("authorization")) for asked in client.asked] == [
            ("/a", "Bearer k1"),
            ("/a", "Bearer k2"),
            ("/b", "Bearer k1"),
            ("/a", "Bearer k1"),
        ]
        assert [body for _, body, _ in client.replies()] == [b"POST /a x", b"POST /a x", b"POST /b x", b"POST /a y"]

    with_client(scenario)


def test_the_head_cache_is_bounded():
    cache = HeadCache()
    for number in range(2 * CACHED_HEADS_MAX):
        text = b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n" % number
        cache.add(text, Head(b"POST", b"/%d" % number, {b"content-length": [b"1"]}, keeps_alive=True))
        assert cache.get(text).path == f"/{number}"
        assert len(cache) <= CACHED_HEADS_MAX


@pytest.mark.parametrize(
    ("headers", "keeps_alive"),
    [
        ({}, True),  # no length, or chunked: the parser has to find the end
        ({b"content-length": [b"1"]}, False),
        ({b"content-length": [b"65537"]}, True),
        ({b"content-length": [b"1"], b"expect": [b"100-continue"]}, True),
    ],
)
def test_only_heads_with_small_bodies_are_cached(headers, keeps_alive):
    cache = HeadCache()
    cache.add(b"text", Head(b"POST", b"/a", headers, keeps_alive=keeps_alive))
    assert cache.get(b"text") is None


WORDS = [
    *(b"GET POST OPTIONS /a * HTTP/1.1 HTTP/1.0 host: x content-length: 3 0 -1 99999999999".split()),
    *(b"transfer-encoding: chunked connection: close upgrade: h2c expect: 100-continue".split()),
    *(
        b" ",
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b"0\r\n\r\n",
        b"3\r\nabc\r\n",
        b"\0",
        b"\xff",
        b"\t",
        b";",
        b"x" * 70_000,
    ),
]


@settings(deadline=None)
@given(
    edits=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20), st.sampled_from(WORDS)), max_size=6),
    cuts=st.sets(st.integers(1, 400), max_size=10),
)
def test_any_bytes_get_complete_replies_and_a_closed_connection(edits, cuts):
    stream = (
        sized(b"one", path="/1") + GET + chunked(b"th", b"ree") + sized(b"four", "connection: upgrade", "upgrade: h2c")
    )
    for place, length, word in edits:
        stream = stream[:place] + word + stream[place + length :]

    async def scenario(client):
        places = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
        for start, end in itertools.pairwise(places):
            if not client.transport.is_closed:
                await client.send(stream[start:end])
        if not client.transport.is_closed and not client.connection.eof_received():
            client.transport.close()
        await soon()
        await client.pass_seconds(4)
        assert client.transport.is_closed
        interim = client.transport.sent.count(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.transport.sent = client.transport.sent.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
        assert {status for status, _, _ in client.replies()} <= {200, 400, 431}
        assert len(client.replies()) <= len(client.asked) + 1
        assert interim <= len(client.asked)

    with_client(scenario)


@settings(deadline=None)
@given(cuts=st.sets(st.integers(1, 400), max_size=10), length=st.sampled_from([-1, 0, 1]))
def test_the_limit_on_a_head_does_not_depend_on_pieces_or_earlier_requests(cuts, length):
    before = GET + chunked(b"a\r\n\r\nb") + sized(b"\r\n\r\n")
    start = b"GET /a HTTP/1.1\r\nhost: x\r\nx-long:"
    head = start + b" " * (HEAD_BYTES_MAX + length - len(start) - 5) + b"y\r\n\r\n"
    stream = before + head + GET

    async def scenario(client):
        ends = {len(stream) - cut for cut in cuts if cut < 60}  # cut the end of the head in two as well
        places = [0, *sorted({*(cut for cut in cuts if cut < len(stream)), *ends}), len(stream)]
        for start, end in itertools.pairwise(places):
            await client.send(stream[start:end])
        answers = [200] * 3 + ([431] if length > 0 else [200, 200])
        assert [status for status, _, _ in client.replies()] == answers

    with_client(scenario)


@pytest.mark.parametrize("lines", [[], ["connection: upgrade", "upgrade: websocket"]])
def test_thousands_of_pipelined_requests_are_answered_one_by_one(lines):
    started = 0

    async def answer(request):
        nonlocal started
        started += 1
        await asyncio.sleep(0)
        return Reply(200, b"")

    async def scenario(client):
        stream = post(b"", *lines) * 2000
        for start in range(0, len(stream), READ_BYTES):
            piece = stream[start : start + READ_BYTES]
            client.connection.get_buffer(-1)[: len(piece)] = piece
            before = started
            client.connection.buffer_updated(len(piece))
            await asyncio.sleep(0)
            assert started - before <= 1, "one is started, the others wait unread"
            assert not client.transport.is_reading
            while not client.transport.is_reading:  # noqa: ASYNC110 - waits for rounds of the event loop
                await asyncio.sleep(0)
        await soon()
        assert [status for status, _, _ in client.replies()] == [200] * 2000

    with_client(scenario, answer)


def test_a_body_of_countless_chunks_yields_to_other_connections():
    async def answer(request):
        return Reply(200, b"%d" % len(await request.body(10 * READ_BYTES)))

    async def scenario(client):
        await client.send(post(b"", "transfer-encoding: chunked"))
        count = READ_BYTES // 6
        client.connection.get_buffer(-1)[: 6 * count] = b"1\r\nx\r\n" * count
        client.connection.buffer_updated(6 * count)
        assert not client.transport.is_reading, "it is read in several portions"
        portions = 0
        while not client.transport.is_reading:
            await asyncio.sleep(0)
            portions += 1
        assert portions >= 6
        await client.send(b"0\r\n\r\n")
        assert client.replies() == [(200, b"%d" % count, False)]

    with_client(scenario, answer)


def test_a_failure_in_the_reader_closes_the_connection_and_logs_one_line(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    async def scenario(client):
        monkeypatch.setattr(head_rules, "flaw_in", fail)
        with capture_logs() as logged:
            await client.send(GET)
        assert [line["event"] for line in logged] == ["connection_failed"]
        assert client.transport.is_closed
        assert client.replies() == []

    with_client(scenario)


def test_an_address_with_too_many_connections_gets_503_until_one_closes():
    async def scenario(client):
        shared = SharedState(client.repeat, per_address=1)
        first, second, third = (Connection(shared, asyncio.get_running_loop()) for _ in range(3))
        transports = [FakeTransport() for _ in range(3)]
        first.connection_made(transports[0])
        second.connection_made(transports[1])
        client.transport = transports[1]
        ((status, body, closes),) = client.replies()
        assert (status, closes, transports[1].is_closed) == (503, True, True)
        assert b"too many connections" in body
        second.connection_lost(None)
        assert shared.connections == {first}
        first.connection_lost(None)
        third.connection_made(transports[2])
        assert transports[2].sent == b""
        assert shared.connections == {third}

    with_client(scenario)


def test_pipelined_requests_are_answered_in_order_and_reading_pauses():
    async def slowly(request):
        body = await request.body(BODY_BYTES_MAX)
        await slow.wait()
        return Reply(200, body)

    async def scenario(client):
        await client.send(sized(b"1") + sized(b"2") + sized(b"3"))
        assert client.replies() == []
        assert not client.transport.is_reading
        slow.set()
        await soon()
        assert [body for _, body, _ in client.replies()] == [b"1", b"2", b"3"]
        assert client.transport.is_reading

    slow = asyncio.Event()
    with_client(scenario, slowly)


@pytest.mark.parametrize(
    ("request_", "closes"),
    [
        (GET, False),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: keep-alive\r\n\r\n", False),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", True),
        (b"GET /a HTTP/1.0\r\n\r\n", True),
        (b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", True),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", False),
    ],
)
def test_a_connection_stays_open_as_the_client_asks(request_, closes):
    async def scenario(client):
        await client.send(request_)
        assert client.replies() == [(200, b"GET /a ", closes)]
        assert client.transport.is_closed == closes

    with_client(scenario)


def test_a_body_after_an_upgrade_header_is_accepted():
    async def scenario(client):
        offer = ["connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABk"]
        await client.send(sized(b"body", *offer) + GET)
        await client.send(post(b"4\r\nbo", "transfer-encoding: chunked", *offer))
        await client.send(b"dy\r\n0\r\n\r\n")
        taken = (200, b"POST /a body", False)
        assert client.replies() == [taken, (200, b"GET /a ", False), taken]
        assert client.asked[0].header("http2-settings") == "AAMAAABk"

    with_client(scenario)


def test_a_reply_to_head_and_one_without_content_have_no_body():
    async def answer(request):
        return Reply(204, b"", {"x-kind": "none"}) if request.path == "/none" else Reply(200, b"body")

    async def scenario(client):
        await client.send(b"HEAD /a HTTP/1.1\r\nhost: x\r\n\r\n")
        head = client.transport.sent
        assert head.endswith(b"content-length: 4\r\n\r\n")
        await client.send(b"OPTIONS /none HTTP/1.1\r\nhost: x\r\n\r\n")
        rest = client.transport.sent[len(head) :]
        assert rest.startswith(b"HTTP/1.1 204 No Content\r\nx-kind: none\r\ndate: ")
        assert b"content-length" not in rest
        date = head.decode().split("date: ")[1].partition("\r\n")[0]
        assert parsedate_to_datetime(date).timestamp() == 0

    with_client(scenario, answer)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # a TLS handshake
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"CONNECT example.com:80 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /a HTTP/2.0\r\nhost: x\r\n\r\n", 400),
        (b"GET /a\r\nhost: x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost : x\r\n\r\n", 400),
        (post(b"", "content-length: 1", "content-length: 2"), 400),
        (post(b"", "content-length: -1"), 400),
        (post(b"", "content-length: 1", "transfer-encoding: chunked"), 400),
        (post(b"", "content-length: " + "0" * 5000 + "1"), 400),
        (post(b"", "transfer-encoding: gzip, chunked"), 400),
        (b"POST /a HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: a b\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nfolded: a\r\n b\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\nhost: x\n\n", 400),
        (post(b"", *["x: y"] * HEADERS_MAX), 431),
        (post(b"", "x: " + "y" * HEAD_BYTES_MAX), 431),
        (post(b"", *(f"x-{number}: y" for number in range(HEADERS_MAX))), 431),
        (post(b"", "x: " + "y" * READ_BYTES), 431),
    ],
)
def test_an_invalid_request_is_refused_after_the_valid_ones(request_, status):
    async def scenario(client):
        await client.send(GET)
        await client.send(request_)
        assert [(code, closes) for code, _, closes in client.replies()] == [(200, False), (status, CLOSED)]
        assert client.transport.has_ended
        await client.send(GET)
        await client.pass_seconds(5)
        assert len(client.replies()) == 2
        assert client.transport.is_closed

    with_client(scenario)


def test_an_invalid_request_waits_for_the_reply_before_it():
    async def scenario(client):
        await client.send(sized(b"1") + b"nonsense\r\n\r\n")
        assert [(code, closes) for code, _, closes in client.replies()] == [(200, False), (400, CLOSED)]

    with_client(scenario)


def test_an_endless_head_is_refused():
    async def scenario(client):
        await client.send(b"GET /a HTTP/1.1\r\n")
        for number in range(HEAD_BYTES_MAX // 1000 + 1):
            await client.send(b"x-%d: %b\r\n" % (number, b"y" * 1000))
        assert [code for code, _, _ in client.replies()] == [431]

    with_client(scenario)


def test_an_endless_trailer_is_refused():
    async def scenario(client):
        await client.send(post(b"1\r\nx\r\n0\r\nx-trailer: ", "transfer-encoding: chunked"))
        for _ in range(2 * HEAD_BYTES_MAX // 1000):
            await client.send(b"y" * 1000)
        assert client.replies() == [(400, b"IncompleteBodyError", CLOSED)]

    with_client(scenario)


def test_a_trailer_is_not_a_header_of_the_next_request():
    async def scenario(client):
        trailed = post(b"1\r\nx\r\n0\r\nauthorization: mine\r\n\r\n", "transfer-encoding: chunked")
        await client.send(trailed + GET)
        assert [request.header("authorization") for request in client.asked] == [None, None]
        assert len(client.replies()) == 2

    with_client(scenario)


@pytest.mark.parametrize("lines", [["content-length: 1000"], ["transfer-encoding: chunked"]])
@pytest.mark.parametrize("leaves", ["by half", "altogether", "never"])
def test_a_truncated_body_is_not_accepted(lines, leaves):
    async def scenario(client):
        await client.send(post(b"3\r\nabc\r\n", *lines))
        assert client.replies() == []
        if leaves == "by half":
            assert client.connection.eof_received(), "the reply can still be read"
        elif leaves == "altogether":
            client.transport.close()
            client.connection.connection_lost(None)
        else:
            await client.pass_seconds(12)
        await soon()
        assert client.replies() == ([] if leaves == "altogether" else [(400, b"IncompleteBodyError", CLOSED)])
        assert len(client.asked) == 1

    with_client(scenario)


def test_a_slow_body_is_waited_for():
    async def answer(request):
        return Reply(200, b"%d" % len(await request.body(100 * BYTES_PER_S)))

    async def scenario(client):
        await client.send(post(b"", f"content-length: {100 * BYTES_PER_S}"))
        for _ in range(100):
            assert client.replies() == []
            await client.send(b"x" * BYTES_PER_S)
            await client.pass_seconds(1)
        assert client.replies() == [(200, b"%d" % (100 * BYTES_PER_S), False)]

    with_client(scenario, answer)


@pytest.mark.parametrize("should_evict", [True, False])
def test_a_slow_body_is_evicted_when_others_need_its_room(should_evict):
    async def answer(request):
        try:
            return Reply(200, b"%d" % len(await request.body(20 * BYTES_PER_S, lambda: should_evict)))
        except Busy:
            return Reply(503, b"busy")

    async def scenario(client):
        await client.send(post(b"", f"content-length: {20 * BYTES_PER_S}"))
        for _ in range(20):
            await client.send(b"x" * BYTES_PER_S)
            await client.pass_seconds(1)
        expected = (503, b"busy", CLOSED) if should_evict else (200, b"%d" % (20 * BYTES_PER_S), False)
        assert client.replies() == [expected]

    with_client(scenario, answer)


def test_a_client_that_took_too_long_can_read_the_refusal():
    async def scenario(client):
        await client.send(post(b"abc", "content-length: 1000"))
        await client.pass_seconds(12)
        assert client.replies() == [(400, b"IncompleteBodyError", CLOSED)]
        assert not client.transport.is_closed
        await client.send(b"x" * 500)
        await client.pass_seconds(4)
        assert client.transport.is_closed

    with_client(scenario)


def test_a_client_that_half_closes_after_a_request_is_answered():
    async def scenario(client):
        await client.send(sized(b"last")[:-1])
        await client.send(b"t")
        assert not client.connection.eof_received()
        assert client.replies() == [(200, b"POST /a last", False)]

    with_client(scenario)


def test_an_oversized_body_is_drained_and_not_kept():
    async def scenario(client):
        await client.send(sized(b"x" * (BODY_BYTES_MAX + 1)) + GET)
        await client.send(chunked(*[b"x" * 100] * 11))
        await client.send(sized(b"x" * BODY_BYTES_MAX))
        replies = [(status, body[:20]) for status, body, _ in client.replies()]
        too_large = (400, b"BodyTooLargeError")
        assert replies == [too_large, (200, b"GET /a "), too_large, (200, b"POST /a " + b"x" * 12)]

    with_client(scenario)


def test_a_handler_may_ask_for_a_larger_body():
    async def answer(request):
        return Reply(200, await request.body(10 * BODY_BYTES_MAX))

    async def scenario(client):
        body = bytes(range(256)) * 39
        await client.send(sized(body)[:5000])
        await client.send(sized(body)[5000:])
        assert client.replies() == [(200, body, False)]

    with_client(scenario, answer)


def test_an_endless_body_is_not_drained_forever():
    async def scenario(client):
        await client.send(post(b"", "content-length: 99999999999"))
        for _ in range(DRAIN_BYTES_MAX // READ_BYTES + 2):
            await client.send(b"x" * READ_BYTES)
        assert client.replies() == [(400, b"BodyTooLargeError", CLOSED)]

    with_client(scenario)


def test_a_body_is_not_read_before_the_handler_asks_for_it():
    async def answer(request):
        asked.append(request)
        await wants.wait()
        return Reply(200, await request.body(BODY_BYTES_MAX))

    async def scenario(client):
        await client.send(post(b"x" * 10 * ENOUGH_BYTES, "content-length: 99999999"))
        await soon()
        assert not client.transport.is_reading
        assert asked[0].size <= ENOUGH_BYTES
        wants.set()
        await soon()
        assert client.transport.is_reading

    asked, wants = [], asyncio.Event()
    with_client(scenario, answer)


def test_a_request_refused_before_its_body_is_answered_and_closed():
    async def refuse(_request):
        return Reply(401, b"no")

    async def scenario(client):
        await client.send(post(b"x" * 100, "content-length: 900"))
        assert client.replies() == [(401, b"no", CLOSED)]
        assert not client.transport.is_closed
        await client.send(b"x" * 800)
        assert not client.connection.eof_received(), "then it is closed"

    with_client(scenario, refuse)


def test_a_client_that_expects_100_continue_gets_it():
    async def scenario(client):
        await client.send(post(b"", "content-length: 4", "expect: 100-continue"))
        assert client.transport.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.transport.sent = b""
        await client.send(b"body")
        assert client.replies() == [(200, b"POST /a body", False)]

    with_client(scenario)


def test_a_client_that_expects_100_continue_with_an_oversized_body_is_refused():
    async def scenario(client):
        await client.send(post(b"", f"content-length: {BODY_BYTES_MAX + 1}", "expect: 100-continue"))
        assert client.replies() == [(400, b"BodyTooLargeError", CLOSED)]

    with_client(scenario)


def test_a_body_of_tiny_chunks_is_joined():
    async def scenario(client):
        await client.send(chunked(*[b"x", b"yz"] * 300))
        assert client.replies() == [(200, b"POST /a " + b"xyz" * 300, False)]

    with_client(scenario)


@pytest.mark.parametrize("sent", [b"", b"GET /a HT", GET, GET + b"GET /a HTTP/1.1\r\nhost"])
def test_an_idle_connection_is_closed(sent):
    async def scenario(client):
        await client.send(sent)
        await client.pass_seconds(HEAD_S_MAX)
        assert not client.transport.is_closed
        await client.pass_seconds(2)
        assert client.transport.is_closed

    with_client(scenario)


def test_a_client_that_does_not_read_replies_is_not_read_either():
    async def scenario(client):
        client.connection.pause_writing()
        assert not client.transport.is_reading
        client.connection.resume_writing()
        assert client.transport.is_reading

    with_client(scenario)


def test_a_client_that_does_not_read_the_last_reply_is_disconnected():
    async def scenario(client):
        client.transport.close = lambda: None  # It waits until everything is sent, which is never.
        await client.send(sized(b"", "connection: close"))
        await client.pass_seconds(HEAD_S_MAX)
        assert not client.transport.is_closed
        await client.pass_seconds(2)
        assert client.transport.is_closed

    with_client(scenario)


@pytest.mark.parametrize("reply", [Reply(200, b"", {"x-text": "\u2713"}), Reply(999, b"")])
def test_a_reply_that_cannot_be_written_ends_the_connection_with_one_log_entry(reply):
    async def answer(_request):
        return reply

    async def scenario(client):
        with capture_logs() as logged:
            await client.send(GET)
        assert client.transport.is_closed
        assert [entry["event"] for entry in logged] == ["connection_failed"]

    with_client(scenario, answer)


def test_a_cancelled_handler_ends_the_connection():
    async def answer(_request):
        raise asyncio.CancelledError

    async def scenario(client):
        await client.send(GET)
        assert client.transport.is_closed

    with_client(scenario, answer)


def test_a_failure_in_the_handler_is_a_500():
    async def fail(_request):
        raise ZeroDivisionError

    async def scenario(client):
        await client.send(GET + GET)
        assert [(status, closes) for status, _, closes in client.replies()] == [(500, False)] * 2

    with_client(scenario, fail)


def test_headers_are_found_by_name_and_joined_when_repeated():
    async def scenario(client):
        await client.send(sized(b"", "X-One: a", "x-two: b", "X-TWO: \xe9,c"))
        request = client.asked[0]
        assert request.header("x-one") == "a"
        assert request.header("x-two") == "b, \xc3\xa9,c"
        assert request.header_values("x-two") == ["b", "\xc3\xa9,c"]
        assert request.header_values("x-none") == []
        assert request.header("x-none") is None

    with_client(scenario)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (b"/v1/events", "/v1/events"),
        (b"/v1/events?a=/b", "/v1/events"),
        (b"http://example.com/v1/events?a", "/v1/events"),
        (b"/v1/events#a", "/v1/events"),
        (b"http://example.com", "/"),
        (b"/v1/%65vents", "/v1/events"),
        (b"/v1%2Fevents", "/v1%2Fevents"),
        (b"/%c3%a9", "/é"),
        (b"/%ff", "/�"),
        (b"*", "*"),
        (b"example.com:80", "example.com:80"),
    ],
)
def test_a_path_is_read_from_every_form_of_url(url, path):
    assert path_of(url) == path


@pytest.mark.parametrize(
    ("url", "query"),
    [
        (b"/v1/events", b""),
        (b"/v1/events?", b""),
        (b"/v1/events?a=/b?c", b"a=/b?c"),
        (b"http://example.com/v1/events?a", b"a"),
        (b"/v1/events?a#b", b"a"),
        (b"/v1/events#a?b", b""),
        (b"*", b""),
    ],
)
def test_a_query_string_is_read_from_every_form_of_url(url, query):
    assert Head(b"POST", url, {}, keeps_alive=True).query == query


class Begun:
    """A plane that begins requests with a small body without a task, and answers when it is told to."""

    def __init__(self):
        self.sends = []

    def begin(self, request, send):
        if request.buffered_body is None or request.path != "/begun":
            return False
        self.sends.append((send, request.buffered_body))
        return True

    def reply(self):
        send, body = self.sends.pop(0)
        send(Reply(202, body))


class TestRequestsBegunWithoutATask:
    def test_each_is_answered_in_order_with_those_that_need_one(self):
        plane = Begun()

        async def scenario(client):
            small = sized(b"1", path="/begun")
            await client.send(small)  # Its head is new: such a request is answered by the task.
            for body in (b"2", b"3"):
                await client.send(sized(body, path="/begun"))
                assert len(plane.sends) == 1
                plane.reply()
            await client.send(sized(b"4", path="/begun"))
            await client.send(sized(b"5", path="/other"))
            await soon()
            assert len(client.replies()) == 3, "the reply to the request before is due"
            plane.reply()
            await soon()
            await client.send(sized(b"6", path="/begun"))
            plane.reply()
            expected = [b"POST /begun 1", b"2", b"3", b"4", b"POST /other 5", b"6"]
            assert [body for _, body, _ in client.replies()] == expected

        with_client(scenario, begin=plane.begin)

    def test_a_refusal_at_once_lets_the_next_ones_in(self):
        def refuse(request, send):
            if request.buffered_body is None:
                return False
            send(Reply(401, request.buffered_body))
            return True

        async def scenario(client):
            await client.send(sized(b"0"))
            await client.send(b"".join(sized(b"%d" % number) for number in range(1, 9)))
            await soon(50)
            assert [body for _, body, _ in client.replies()] == [b"POST /a 0", *(b"%d" % each for each in range(1, 9))]

        with_client(scenario, begin=refuse)

    def test_a_refusal_that_closes_is_the_last_reply(self):
        def refuse(request, send):
            if request.buffered_body is None:
                return False
            send(Reply(503, b"", {"connection": "close"}))
            return True

        async def scenario(client):
            await client.send(sized(b"0"))
            await client.send(sized(b"1") + sized(b"2"))
            await soon(50)
            assert [(status, ends) for status, _, ends in client.replies()] == [(200, False), (503, CLOSED)]
            assert client.transport.has_ended

        with_client(scenario, begin=refuse)

    def test_a_client_that_leaves_gets_nothing(self):
        plane = Begun()

        async def scenario(client):
            await client.send(sized(b"1", path="/begun"))
            sent = client.transport.sent
            await client.send(sized(b"2", path="/begun"))
            client.transport.close()
            client.connection.connection_lost(None)
            plane.reply()
            await soon()
            assert client.transport.sent == sent

        with_client(scenario, begin=plane.begin)

    def test_a_plane_that_fails_ends_the_connection_only(self):
        def fail(request, _send):
            if request.buffered_body is None:
                return False
            raise ValueError("planted")

        async def scenario(client):
            await client.send(sized(b"1"))
            with capture_logs() as logged:
                await client.send(sized(b"2"))
            assert [line["event"] for line in logged] == ["connection_failed"]
            assert client.transport.is_closed

        with_client(scenario, begin=fail)
