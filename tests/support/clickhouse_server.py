"""The program that `support.clickhouse` runs: ClickHouse's HTTP interface over the embedded engine.

Usage: clickhouse_server.py HOST PORT FOLDER. Names and passwords come from the environment.
"""

import base64
import email
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import chdb

HOST, PORT, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
LIMITS = "max_server_memory_usage=3000000000&background_pool_size=2"
PATH = f"{FOLDER}/data?{LIMITS}&backups.allowed_path={FOLDER}/backups"  # for BACKUP … TO File('name')
PASSWORDS = {os.environ["CLICKHOUSE_USER"]: os.environ["CLICKHOUSE_PASSWORD"]}
NOT_SETTINGS = {
    *("query", "database", "session_id", "session_timeout", "session_check", "query_id", "user", "password"),
    *("wait_end_of_query", "buffer_size", "default_format", "client_protocol_version", "quota_key"),
}
SESSION_S_MAX = 30.0  # Each takes memory, and thousands of tests share a server.
DATA_FORMAT = re.compile(rb"(\s*INSERT INTO .{1,200}?) FORMAT (\w+)\s*\n", re.DOTALL)
CODE = re.compile(r"Code: (\d+)")


class Session:
    """A connection of the engine, with the settings and the database that it has now."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection = chdb.connect(PATH)
        self.settings: dict[str, str] = {}
        self.database, self.ends_at = "default", 0.0

    def prepare(self, database: str, settings: Mapping[str, str]) -> None:
        if database != self.database:
            self.connection.query(f"USE `{database}`")
            self.database = database
        for name in self.settings.keys() - settings.keys():
            self.connection.query(f"SET {name} = DEFAULT")
            del self.settings[name]
        for name, value in settings.items():
            if self.settings.get(name) != value:
                text = value if value.isdigit() else "'{}'".format(value.replace("\\", "\\\\").replace("'", "\\'"))
                self.connection.query(f"SET {name} = {text}")
                self.settings[name] = value


class Sessions:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._named: dict[str, Session] = {}
        self._unnamed: list[Session] = []

    @contextmanager
    def session(self, name: str | None, timeout_s: float) -> Iterator[Session]:
        if name is None:
            with self._lock:
                session = self._unnamed.pop() if self._unnamed else Session()
            yield session
            with self._lock:
                self._unnamed.append(session)
            return
        with self._lock:
            self._end_old()
            if name not in self._named:
                self._named[name] = Session()
            session = self._named[name]
            session.ends_at = time.monotonic() + timeout_s
        if not session.lock.acquire(blocking=False):
            raise RuntimeError(f"Code: 373. DB::Exception: Session {name} is locked (SESSION_IS_LOCKED)")
        try:
            yield session
        finally:
            session.lock.release()

    def _end_old(self) -> None:
        for name, session in list(self._named.items()):
            if session.ends_at < time.monotonic() and not session.lock.locked():
                del self._named[name]
                session.connection.close()


SESSIONS = Sessions()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65_536

    def do_GET(self) -> None:
        self._answer(200, b"Ok.\n", {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        parameters = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        if self.headers.get("content-type", "").startswith("multipart/form-data"):
            parameters |= form_fields(self.headers["content-type"], body)
            body = b""
        try:
            self._check_password()
            answer = run(parameters, body)
        except (chdb.ChdbError, RuntimeError) as error:
            found = CODE.search(str(error))
            code = found.group(1) if found else "1002"
            status = 403 if code == "516" else 404 if code in ("60", "81") else 500
            self._answer(status, str(error).encode(), {"X-ClickHouse-Exception-Code": code})
        else:
            self._answer(200, answer, {"X-ClickHouse-Format": "TabSeparated", "X-ClickHouse-Timezone": "UTC"})

    def _check_password(self) -> None:
        text = self.headers.get("authorization", "Basic ").removeprefix("Basic ")
        user, _, password = base64.b64decode(text).decode().partition(":")
        if PASSWORDS.get(user) != password:
            raise RuntimeError(f"Code: 516. DB::Exception: {user}: Authentication failed (AUTHENTICATION_FAILED)")

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        with suppress(ConnectionError):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

    def log_message(self, *_arguments: object) -> None:
        pass


def form_fields(content_type: str, body: bytes) -> dict[str, str]:
    message = email.message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    fields = {}
    for part in message.walk():
        content = part.get_payload(decode=True)
        if isinstance(content, bytes):
            fields[str(part.get_param("name", header="content-disposition"))] = content.decode()
    return fields


def run(parameters: Mapping[str, str], body: bytes) -> bytes:
    query = parameters.get("query", "").encode() + body
    bound = {name[6:]: value for name, value in parameters.items() if name.startswith("param_")}
    settings = {
        name: value
        for name, value in parameters.items()
        if name not in NOT_SETTINGS and not name.startswith(("param_", "send_progress", "http_"))
    }
    timeout_s = min(float(parameters.get("session_timeout", "60")), SESSION_S_MAX)
    with SESSIONS.session(parameters.get("session_id"), timeout_s) as session:
        session.prepare(parameters.get("database", "default"), settings)
        inserted = DATA_FORMAT.match(query)
        if inserted is None:
            answer: bytes = session.connection.query(query.decode(), "TabSeparated", params=bound or None).bytes()
            return answer
        with session.connection.send_insert(inserted.group(1).decode(), inserted.group(2).decode()) as inserter:
            inserter.append(query[inserted.end() :])
            inserter.finish()
        return b""


if __name__ == "__main__":
    FIRST = chdb.connect(PATH)  # Keeps the engine open.
    ThreadingHTTPServer((HOST, PORT), Handler).serve_forever()
