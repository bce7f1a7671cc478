"""The client in programs that fork, spawn, block and exit."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import pytest

from mauve_metrics import AsyncMauve, Mauve
from stub import KEY, PATIENCE_S, eventually

SOURCES = str(Path(__file__).parents[1] / "src")


def run(program, *arguments, python=sys.executable, **environment):
    return subprocess.run(
        [python, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": SOURCES, **environment},
        check=True,
    )


def names(service):
    return sorted(item["name"] for item in service.items())


EXIT = """
import sys
from mauve_metrics import Mauve
mauve = Mauve(sys.argv[1], url=sys.argv[2], flush_interval=60, timeout=float(sys.argv[3]))
for number in range(1000):
    mauve.track(str(number))
"""


def test_a_full_queue_is_delivered_at_exit(service):
    run(EXIT, KEY, service.url, "60")
    assert len(set(names(service))) == 1000


def test_the_exit_is_bounded_by_the_timeout_if_the_server_is_silent():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        done = run(EXIT, KEY, f"http://127.0.0.1:{silent.getsockname()[1]}", "2")
        assert 2 <= time.monotonic() - began < 60
    assert "dropped" in done.stderr


def test_several_clients_share_the_time_at_exit():
    program = "clients = []\n" + EXIT.replace("mauve = Mauve", "for _ in range(30): mauve = Mauve").replace(
        "timeout=float(sys.argv[3]))", "timeout=float(sys.argv[3])); mauve.track('seen')"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        run(program, KEY, f"http://127.0.0.1:{silent.getsockname()[1]}", "3")
        assert time.monotonic() - began < 60


TRACK_AT_EXIT = """
import atexit, sys
from mauve_metrics import Mauve
mauve = Mauve(sys.argv[1], url=sys.argv[2])
atexit.register(lambda: mauve.track("last words"))
"""


def test_an_item_queued_by_an_exit_handler_is_delivered(service):
    run(TRACK_AT_EXIT, KEY, service.url)
    assert names(service) == ["last words"]


FORK = """
import os, sys
from mauve_metrics import Mauve
mauve = Mauve(sys.argv[1], url=sys.argv[2], flush_interval=60, spool=sys.argv[3] or None)
mauve.track("parent before")
if os.fork() == 0:
    assert mauve.stats.queued == 0, mauve.stats
    mauve.track("child")
    sys.exit(0)
mauve.track("parent after")
assert mauve.stats.queued + mauve.stats.accepted == 2, mauve.stats
assert os.wait()[1] == 0
"""


@pytest.mark.parametrize("has_spool", [False, True])
def test_a_forked_child_starts_with_an_empty_queue_and_sends_its_own(service, tmp_path, has_spool):
    run(FORK, KEY, service.url, str(tmp_path) if has_spool else "")
    assert names(service) == ["child", "parent after", "parent before"]


FORK_WITH_A_CONNECTION = """
import os, sys
from mauve_metrics import Mauve
mauve = Mauve(sys.argv[1], url=sys.argv[2], flush_interval=60)
mauve.track("parent")
assert mauve.flush(60)
def sockets():
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink("/proc/self/fd/" + number))
        except OSError:  # of the listing itself
            pass
    return sum(link.startswith("socket:") for link in links)
assert sockets() == 1
if os.fork() == 0:
    assert sockets() == 0
    mauve.track("child")
    assert mauve.flush(60)
    os._exit(0)
assert os.wait()[1] == 0
mauve.track("parent again")
assert mauve.flush(60)
"""


def test_a_child_closes_the_connection_of_its_parent_which_keeps_it(service):
    run(FORK_WITH_A_CONNECTION, KEY, service.url)
    assert names(service) == ["child", "parent", "parent again"]


def delivery_threads():
    return [each for each in threading.enumerate() if each.name == "mauve-delivery"]


@pytest.mark.parametrize("kind", [Mauve, AsyncMauve])
@pytest.mark.parametrize("has_spool", [False, True])
def test_a_client_that_is_dropped_delivers_and_ends_its_thread_and_connection(service, tmp_path, kind, has_spool):
    gc.collect()
    eventually(lambda: not delivery_threads())
    connections = []
    connect = HTTPConnection.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HTTPConnection, "connect", lambda self: (connections.append(weakref.ref(self)), connect(self)))
        for number in range(20):
            options = {"spool": tmp_path} if has_spool else {}
            kind(KEY, url=service.url, flush_interval=0.01, timeout=PATIENCE_S, **options).track(str(number))
            gc.collect()
        eventually(lambda: not delivery_threads())
    assert sorted(map(int, names(service))) == list(range(20))
    gc.collect()
    assert len(connections) == 20
    assert [each() for each in connections if each() is not None and each().sock is not None] == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_client_that_is_dropped_while_the_service_refuses_gives_up_like_a_closed_one(service, caplog):
    service.answer = (401, {}, None)
    dropped = []
    mauve = Mauve(KEY, url=service.url, flush_interval=0.01, timeout=0.5, on_drop=lambda *fate: dropped.append(fate))
    mauve.track("seen")
    eventually(lambda: "is held" in caplog.text)
    del mauve
    gc.collect()
    eventually(lambda: not delivery_threads())
    ((item, reason),) = dropped
    assert (item["name"], reason) == ("seen", "the client was closed before the service answered")
    assert "mauve: dropped 1 item" in caplog.text


MULTIPROCESSING = """
import multiprocessing, sys
from mauve_metrics import Mauve

mauve = Mauve(sys.argv[1], url=sys.argv[2], flush_interval=60)

def work(number):
    mauve.track(f"child {number}")

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[3])
    mauve.track("parent")
    children = [context.Process(target=work, args=(number,)) for number in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_deliver_at_their_end(service, tmp_path, method):
    program = tmp_path / "program.py"
    program.write_text(MULTIPROCESSING)
    command = [sys.executable, str(program), KEY, service.url, method]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    subprocess.run(command, check=True, timeout=PATIENCE_S, env=environment)
    assert names(service) == ["child 0", "child 1", "child 2", "parent"]


WEB_APPLICATION = """
import os
from mauve_metrics import Mauve

mauve = Mauve(flush_interval=0.2)
mauve.track("loaded")

def application(environ, start_response):
    mauve.track("request", props={"pid": os.getpid()})
    start_response("200 OK", [("content-type", "text/plain"), ("content-length", "2")])
    return [b"ok"]
"""


def get(port):
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
        return connection.recv(100)


@pytest.mark.parametrize("worker", ["sync", "gevent", "gthread"])
def test_workers_of_gunicorn_with_preloading_deliver(service, tmp_path, worker):
    (tmp_path / "web.py").write_text(WEB_APPLICATION)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "gunicorn", "--preload", "-w", "2", "-k", worker, "--bind"]
        process = subprocess.Popen(
            [*command, f"fd://{listener.fileno()}", "--no-control-socket", "--chdir", str(tmp_path), "web:application"],
            pass_fds=[listener.fileno()],
            env={**os.environ, "PYTHONPATH": SOURCES, "MAUVE_KEY": KEY, "MAUVE_INGEST_URL": service.url},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            for _ in range(40):
                assert get(port).startswith(b"HTTP/1.1 200")
            eventually(lambda: names(service).count("request") >= 35)  # The rest may wait for the next flush.
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, log
    assert names(service) == ["loaded"] + ["request"] * 40, log


def test_a_blocked_event_loop_delays_no_delivery(service):
    async def program():
        async with AsyncMauve(KEY, url=service.url, flush_interval=0.1) as mauve:
            mauve.track("seen", user="ann")
            began = time.monotonic()
            while time.monotonic() - began < 5:
                time.sleep(0.05)  # noqa: ASYNC251 - the loop is blocked on purpose
            arrived = names(service)
            mauve.signup(user="ann")
            assert await mauve.flush(PATIENCE_S)
        return arrived, mauve.stats

    arrived, stats = asyncio.run(program())
    assert arrived == ["seen"]
    assert stats.accepted == 2


def test_a_flush_does_not_wait_for_other_work_of_the_loop(service):
    is_over = threading.Event()

    async def program():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, is_over.wait, PATIENCE_S)
        async with AsyncMauve(KEY, url=service.url, flush_interval=60) as mauve:
            mauve.track("seen")
            assert await mauve.flush(PATIENCE_S)
            assert not busy.done()
            service.answer = (402, {}, None)
            mauve.track("held")
            assert not await mauve.flush(0.5)
            assert not await mauve.close(0.5)
        assert not busy.done()
        is_over.set()
        await busy
        return mauve.stats

    stats = asyncio.run(program())
    assert (stats.accepted, stats.dropped) == (1, 1)


CLOSED_BEFORE_FORK = """
import os, sys
from mauve_metrics import Mauve
mauve = Mauve(sys.argv[1], url=sys.argv[2])
mauve.close()
if os.fork() == 0:
    mauve.track("child")
    assert not mauve.stats.queued and mauve.stats.dropped == 1, mauve.stats
    assert mauve.close()
    os._exit(0)
assert os.wait()[1] == 0
"""


def test_a_client_closed_before_a_fork_stays_closed(service):
    run(CLOSED_BEFORE_FORK, KEY, service.url)
    assert service.requests == []


FORK_WHILE_CLOSING_A_FILE = """
import os, sys, threading
from mauve_metrics import Mauve

close, is_closing, may_go_on, numbers = os.close, threading.Event(), threading.Event(), []

def slow_close(number):
    close(number)
    if threading.current_thread().name == "writer" and not numbers:
        numbers.append(number)
        is_closing.set()
        may_go_on.wait(60)

mauve = Mauve(sys.argv[1], url=sys.argv[2], spool=sys.argv[3], spool_max_bytes=64_000, flush_interval=60)
def write():
    while not numbers:
        mauve.track("parent", props={"text": "x" * 400})
os.close = slow_close
threading.Thread(target=write, name="writer", daemon=True).start()
assert is_closing.wait(60)
mine = os.dup2(os.open(os.devnull, os.O_RDONLY), numbers[0])  # the number that was just closed
if os.fork() == 0:
    os.fstat(mine)
    mauve.track("child")
    assert mauve.stats.queued == 1, mauve.stats
    os._exit(0)
assert os.wait()[1] == 0
may_go_on.set()
os._exit(0)
"""


def test_a_fork_while_a_file_is_closed_starts_the_child_afresh(tmp_path):
    done = run(FORK_WHILE_CLOSING_A_FILE, KEY, "http://127.0.0.1:1", str(tmp_path))
    assert done.stderr == ""


FORK_WHILE_SENDING = """
import os, sys, threading, time
from mauve_metrics import Mauve

def send():
    while True:
        mauve.track("parent")
        time.sleep(0.001)

def wait_for_one():
    global running
    running -= 1
    assert os.wait()[1] == 0

mauve = Mauve(sys.argv[1], url=sys.argv[2], flush_interval=0.01, max_queue=10**6)
for _ in range(2):
    threading.Thread(target=send, daemon=True).start()
running = 0
for _ in range(int(sys.argv[3])):  # from the first moment on: the first request does things that no later one does
    if os.fork() == 0:
        mauve.track("child")
        os._exit(not mauve.flush(60))
    running += 1
    while running > 10:
        wait_for_one()
while running:
    wait_for_one()
os._exit(0)
"""


def test_thousands_of_forks_while_two_threads_send_leave_children_that_deliver(service):
    for _ in range(20):
        run(FORK_WHILE_SENDING, KEY, service.url, "100")
    assert names(service).count("child") == 2000


NOTHING_NEW = """
import codecs, sys
from mauve_metrics import Control, Mauve, MauveError, Metrics
before = set(sys.modules)
mauve = Mauve(sys.argv[1], url=sys.argv[2], spool=sys.argv[3])
for text in ("short", "long" * 250):
    mauve.track("seen", props={"text": text})
    mauve.subscription(id="s", status="active", mrr=1, currency="eur")
    assert mauve.flush(60)
mauve.close()
port = sys.argv[2].rpartition(":")[2]
for url in (f"https://127.0.0.1:{port}", "http://127.0.0.1:1", "http://n\u00f6where.invalid"):
    unreachable = Mauve(sys.argv[1], url=url)
    unreachable.track("seen")
    assert not unreachable.flush(0.5)
    unreachable.close(0)
for call in (Metrics(sys.argv[1], url=sys.argv[2]).mau, Control("ctl_live_x", url=sys.argv[2]).apps):
    try:
        call()
    except MauveError:
        pass
print(sorted(set(sys.modules) - before))
"""


def test_sending_imports_nothing_so_that_no_fork_comes_in_the_middle_of_an_import(service, tmp_path):
    assert run(NOTHING_NEW, KEY, service.url, str(tmp_path)).stdout == "[]\n"


INTERRUPTED = """
import signal, sys, threading, time
from mauve_metrics import Mauve

class Interrupted(Exception):
    pass

def interrupt(*_):
    if is_armed:
        raise Interrupted

is_armed, returned, interrupted = False, 0, 0
mauve = Mauve(sys.argv[1], url=sys.argv[2], max_queue=10**6, spool=sys.argv[3] or None)
mauve.track("first")
assert mauve.flush(60)
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while interrupted < 200:
    try:
        is_armed = True
        while True:
            mauve.track("seen")
            returned += 1
    except Interrupted:
        is_armed = False
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
is_free = threading.Event()
threading.Thread(target=lambda: (mauve.stats, is_free.set()), daemon=True).start()
assert is_free.wait(60), "a call that was interrupted kept the lock"
assert mauve.flush(600)
assert mauve.stats.queued == 0
assert returned <= mauve.stats.accepted - 1 <= returned + interrupted, (returned, interrupted, mauve.stats)
"""


@pytest.mark.parametrize("has_spool", [False, True])
def test_a_signal_handler_that_raises_leaves_a_client_that_works(service, tmp_path, has_spool):
    run(INTERRUPTED, KEY, service.url, str(tmp_path) if has_spool else "")


RE_ENTRANT = """
import os, random, signal, sys
from mauve_metrics import Mauve, _outbox

from_handler, is_armed = 0, False

def handle(*_):
    global from_handler
    mauve.track("handler")
    from_handler += 1
    mauve.flush(0)

def interrupted(function):
    def call(*arguments):
        global is_armed
        result = function(*arguments)
        if is_armed:
            is_armed = False
            signal.raise_signal(signal.SIGALRM)  # between two steps of a call, under the lock
        return result
    return call

mauve = Mauve(sys.argv[1], url=sys.argv[2], max_queue=10**6, flush_interval=0.05, spool=sys.argv[3] or None)
mauve.track("main")
assert mauve.flush(600)
signal.signal(signal.SIGALRM, handle)
for _ in range(1000):
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-4))  # anywhere in a call
    mauve.track("main")
signal.setitimer(signal.ITIMER_REAL, 0)
timed = from_handler
os.write, _outbox.Outbox._enter = interrupted(os.write), interrupted(_outbox.Outbox._enter)
for _ in range(100):
    is_armed = True
    mauve.track("main")
assert from_handler - timed == 100, (timed, from_handler)
assert mauve.flush(600)
assert mauve.stats.queued == 0
assert mauve.stats.accepted == 1101 + from_handler, (from_handler, mauve.stats)
assert mauve.close(600)
print(from_handler)
"""


CLOSED_BY_HANDLER = """
import signal, sys
from mauve_metrics import Mauve, _outbox

def end(*_):
    mauve.track("last words")
    assert not mauve.close()  # It cannot wait: the call that was interrupted holds the queue.
    sys.exit(3)

def interrupted_enter(outbox, entry):
    _outbox.Outbox._enter = enter
    enter(outbox, entry)
    signal.raise_signal(signal.SIGTERM)

mauve = Mauve(sys.argv[1], url=sys.argv[2], timeout=120)
signal.signal(signal.SIGTERM, end)
enter, _outbox.Outbox._enter = _outbox.Outbox._enter, interrupted_enter
mauve.track("main")
"""


OTHER_PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
SUPPORTED = [str(path) for path in OTHER_PYTHONS if int(path.parts[-3].split(".")[1]) >= 9]
EVERY_CALL = """
import sys, warnings
warnings.simplefilter("error")
from mauve_metrics import Mauve
mauve = Mauve(sys.argv[1], url=sys.argv[2], spool=sys.argv[3])
mauve.track("seen", user="ann", props={"version": "%d.%d" % sys.version_info[:2]})
mauve.payment(id="p", amount=1, currency="eur")
mauve.subscription(id="s", status="active", mrr=1, currency="eur")
"""


@pytest.mark.parametrize("python", [sys.executable, *SUPPORTED])
def test_every_installed_python_runs_the_client(service, tmp_path, python):
    done = run(
        "import mauve_metrics.reading, mauve_metrics.control\n" + EVERY_CALL,
        KEY,
        service.url,
        str(tmp_path),
        python=python,
    )
    assert done.stderr == ""
    assert names(service) == ["payment", "seen"]
    assert len(service.items("/v1/objects")) == 1


@pytest.mark.parametrize("has_spool", [False, True])
@pytest.mark.parametrize("python", [sys.executable, *SUPPORTED])
def test_a_signal_handler_may_track_while_a_call_is_interrupted(service, tmp_path, python, has_spool):
    done = run(RE_ENTRANT, KEY, service.url, str(tmp_path) if has_spool else "", python=python)
    assert (names(service).count("main"), names(service).count("handler")) == (1101, int(done.stdout))
    assert len(service.accepted_ids()) == 1101 + int(done.stdout)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("python", [sys.executable, *SUPPORTED])
def test_a_signal_handler_that_closes_and_exits_loses_nothing(service, python):
    with pytest.raises(subprocess.CalledProcessError) as ended:
        run(CLOSED_BY_HANDLER, KEY, service.url, python=python)
    assert (ended.value.returncode, ended.value.stderr) == (3, "")
    assert names(service) == ["last words", "main"]
