"""A proxy before the service that refuses, delays and cuts connections as a schedule says."""

import gzip
import json
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from mauve_metrics._waiting import Clock

FINAL = {400, 403, 413, 415, 422}  # A client gives up the items, so the service must not have them.
HELD = [200, 204, 301, 401, 404, 408, 429, 500, 502, 503, 504]
FAULTS = ["cut before", "cut after", "half an answer", "delay", "silence", "capped", *sorted(FINAL), *HELD]


class HastyClock(Clock):
    """Holds pass a hundred times as fast."""

    speed = 100.0

    def monotonic(self):
        return time.monotonic() * self.speed

    def wait(self, signal, timeout_s):
        super().wait(signal, timeout_s / self.speed)


class Proxy:
    def __init__(self, target):
        self.target = urlsplit(target)
        self.url = ""
        self.schedule = []
        self.forwarded = set()
        self.lock = threading.Lock()

    def next_fault(self, ids):
        with self.lock:
            fault = self.schedule.pop(0) if self.schedule else None
            if fault in FINAL and self.forwarded & ids:
                fault = None
            if not isinstance(fault, int) and fault not in {"cut before", "capped"}:
                self.forwarded |= ids
            return fault

    def forward(self, path, headers, body):
        connection = HTTPConnection(self.target.hostname, self.target.port, timeout=60)
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer


def handler_for(proxy):  # noqa: C901 - a table of faults
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            text = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            ids = {(item["id"], str(item.get("props", {}).get("amount"))) for item in json.loads(text)}
            fault = proxy.next_fault(ids)
            if fault == "cut before":
                self.close_connection = True
            elif fault == "capped":
                resets_at = int(time.time() * 1000) + 900
                self._send(403, {"ok": False, "code": "event_cap_reached", "resets_at": resets_at})
            elif isinstance(fault, int):
                self._send(fault, {"ok": False, "error": "by schedule"})
            else:
                kept = ("authorization", "content-type", "content-encoding")
                headers = {name: self.headers[name] for name in kept if name in self.headers}
                self._pass_on(fault, *proxy.forward(self.path, headers, body))

        def _pass_on(self, fault, status, content):
            if fault == "cut after":
                self.close_connection = True
            elif fault == "silence":
                time.sleep(1.5)  # longer than the client waits
                self.close_connection = True
            elif fault == "half an answer":
                self.wfile.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 100\r\n\r\n{")
                self.close_connection = True
            else:
                time.sleep(0.2 if fault == "delay" else 0)
                self._send(status, json.loads(content))

        def _send(self, status, content):
            body = b"" if status == 204 else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    return Handler


@contextmanager
def proxy_before(target):
    proxy = Proxy(target)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments):
            pass  # The client has hung up.

    server = Server(("127.0.0.1", 0), handler_for(proxy))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
