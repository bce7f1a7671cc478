"""A service that answers as a test says, a clock that a test moves, and waiting for conditions."""

import gzip
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.service import PATIENCE_S, eventually

from mauve_metrics._waiting import Clock

__all__ = ["KEY", "PATIENCE_S", "ManualClock", "StubService", "accept", "eventually", "stub_service", "total"]

KEY = "sk_live_0123456789"


def accept(items):
    return 202, {}, {"ok": True, "accepted": len(items), "rejected": 0}


def total(stats):
    return stats.queued + stats.accepted + stats.rejected + stats.dropped + stats.expired


class ManualClock(Clock):
    """Time stands still until a test moves it. A wait looks again every few milliseconds."""

    def __init__(self, now_s=1_700_000_000.0):
        self.start_s = now_s
        self.elapsed_s = 0.0

    def now_s(self):
        return self.start_s + self.elapsed_s

    def monotonic(self):
        return self.elapsed_s

    def wait(self, signal, timeout_s):
        super().wait(signal, min(timeout_s, 0.005))

    def advance(self, seconds):
        self.elapsed_s += seconds


class StubService:
    """Answers each request by the first of `answers` that is left, else by `answer`. Keeps every request."""

    def __init__(self, url):
        self.url = url
        self.requests = []  # (path, headers, items)
        self.answers = []
        self.answer = accept
        self.lock = threading.Lock()

    def respond(self, path, headers, items):
        with self.lock:
            self.requests.append((path, headers, items))
            answer = self.answers.pop(0) if self.answers else self.answer
        return answer(items) if callable(answer) else answer

    def items(self, path="/v1/events"):
        # The process that sent a request may have ended before its body.
        return [item for at, _, items in list(self.requests) if at == path for item in items or ()]

    def accepted_ids(self):
        return {item["id"] for item in self.items()}


@contextmanager
def stub_service():
    service = StubService("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            self.sent_bytes = len(body)
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            self._answer(json.loads(body) if body else None)

        def do_GET(self):
            self._answer(None)

        do_DELETE = do_GET  # noqa: N815 - named by the standard library
        do_PUT = do_PATCH = do_POST  # noqa: N815

        def _answer(self, items):
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = service.respond(self.path, {**headers, "method": self.command}, items)
            if isinstance(answer, str):
                if answer != "cut":
                    length = b"" if "without" in answer else b"content-length: 100\r\n"
                    self.wfile.write(b'HTTP/1.1 202 Accepted\r\n%b\r\n{"ok":true,"acc' % length)
                self.close_connection = True
                return
            status, extra, content = answer
            is_raw = isinstance(content, bytes)
            body = b"" if content is None else content if is_raw else json.dumps(content).encode()
            self.send_response(status)
            for name, value in extra.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_arguments):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
