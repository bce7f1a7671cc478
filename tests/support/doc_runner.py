"""Run the code blocks of a document in a folder of their own, against a running service.

Blocks of a document run in order, as a reader would run them. A block with a title is saved as that file. What a reader
fills in (`sk_live_…`, the service's address) is filled in here, and a port of the reader's own app is replaced with a
free one. `pip` and `npm` only check that the test has what a block installs.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser

from support.doc_blocks import ROOT, Block
from support.ports import free_ports
from support.service import MAUVE, PATIENCE_S, Service, eventually, until_loaded

NODE = ROOT / "tests/docs/node"
STAYS = "leave it running"
ACCEPTED = 202
_OWN_PORT = re.compile(r"\b(?:3000|5000|8000)\b")
_COMMANDS = {
    "mauve": f'[ "$1" != erase-user ] || set -- "$@" --yes; exec {MAUVE} "$@"',  # A reader would confirm.
    "python": f'exec {sys.executable} "$@"',
    "pip": f'exec {sys.executable} {ROOT}/tests/docs/installed.py "$@"',
    "npm": f'exec {sys.executable} {ROOT}/tests/docs/installed.py "$@"',
    **{name: f'exec {sys.executable} -m {name} "$@"' for name in ("flask", "uvicorn")},
    "django-admin": f'exec {sys.executable} -m django "$@"',
}


@dataclass(frozen=True)
class Credentials:
    """The app that the document's reader has created."""

    app: str
    project: str
    server_key: str
    publishable_key: str
    token: str


@dataclass
class Runner:
    service: Service
    credentials: Credentials
    folder: Path
    chromium: Browser
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        commands = self.folder / ".venv/bin"
        commands.mkdir(parents=True)
        for name, line in _COMMANDS.items():
            (commands / name).write_text(f"#!/bin/sh\n{line}\n")
            (commands / name).chmod(0o755)
        (self.folder / "node_modules").symlink_to(NODE / "node_modules")
        shutil.copy(NODE / "tsconfig.json", self.folder)
        (self.folder / "package.json").write_text('{"type": "module"}')
        (self.folder / "backups").mkdir()
        (self.folder / "secret.txt").write_text("whsec_" + "c2VjcmV0" * 4)
        sample = json.loads((ROOT / "tests/samples/billing/stripe_invoice_paid_basic.json").read_text())
        (self.folder / "events.jsonl").write_text(json.dumps(sample) + "\n")

    def run(self, block: Block) -> None:
        """Run a block as its language asks for; raise if it fails, or prints something else than shown."""
        text = self._filled_in(block.text)
        if block.title not in {None, STAYS}:
            self._write(block.title, text)
        match block.language:
            case "sh" if block.title == STAYS:
                self._start(block, text)
            case "sh":
                self._run_and_compare(block, text)
            case "python" if block.title is None:
                self._done(block, [self._command("python"), self._write(f"block{block.line}.py", text)])
            case "ts" if "mauve-metrics/browser" in text:
                self._open(f"<script>{self._bundled(block, text, 'browser')}</script>")
            case "ts":
                self._bundled(block, text, "node")
                self._done(block, ["node", NODE / "call.mjs", self.folder / "bundle.mjs"])
            case "html":
                self._open(text)

    def check_types(self) -> None:
        """Check every TypeScript file that the document's blocks have made."""
        if any(self.folder.glob("[!n]*/**/*.ts*")) or any(self.folder.glob("*.ts*")):
            command = [str(NODE / "node_modules/.bin/tsc"), "-p", "."]
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout

    def server_keys(self) -> set[str]:
        """Return the keys of the app that the test has created, and of one that the document's reader has created."""
        created = {self._variable(name) or "" for name in ("KEY", "MAUVE_KEY")}
        return {self.credentials.server_key} | {key for key in created if key.startswith("sk_")}

    def close(self) -> None:
        for process in self.started:
            os.killpg(process.pid, signal.SIGTERM)  # A group of its own: the block's shell and what it started.
            process.wait(timeout=PATIENCE_S)

    def _filled_in(self, text: str) -> str:
        known = self.credentials
        url, ingest_url = self.service.url, self.service.ingest_url
        for shown, real in {
            "http://127.0.0.1:8080": url,
            "http://127.0.0.1:8081": ingest_url,
            "https://api.example.com": url,
            "https://mauve.example.com": url,
            "https://ingest.example.com": ingest_url,
            "https://metrics.example.com": ingest_url,
            "sk_live_…": known.server_key,
            "pk_live_…": self._variable("PUBLISHABLE_KEY") or known.publishable_key,
            "ctl_live_…": known.token,
            "proj_…": known.project,
            "app_…": known.app,
            "--app APP": f"--app {known.app}",
            "/backups/": f"{self.folder}/backups/",
            "/srv/mauve": f"{self.folder}/restored",
        }.items():
            text = text.replace(shown, real)
        return _OWN_PORT.sub(lambda match: str(self._port(match[0])), text)

    def _variable(self, name: str) -> str | None:
        """Return a variable that an earlier block has set."""
        state = self.folder / ".state"
        found = re.search(rf'^declare -x {name}="(.*)"$', state.read_text(), re.MULTILINE) if state.exists() else None
        return found and found[1]

    def _port(self, shown: str) -> int:
        if shown not in self.ports:
            (self.ports[shown],) = free_ports(1)
        return self.ports[shown]

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def _command(self, name: str) -> Path:
        return self.folder / ".venv/bin" / name

    def _environment(self) -> dict[str, str]:
        known = self.credentials
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAUVE_")}
        return inherited | {
            "PATH": f"{self.folder}/.venv/bin:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}/clients/python/src",
            "MAUVE_DATA": str(self.service.data),
            "MAUVE_KEY": known.server_key,
            "MAUVE_INGEST_URL": self.service.ingest_url,
            "KEY": known.server_key,
            "TOKEN": known.token,
        }

    def _shell(self, text: str) -> list[str]:
        """Return a command that runs the text with the variables of the blocks before it, and keeps its own."""
        return ["bash", "-c", f"set -aeo pipefail\n[ ! -f .state ] || . ./.state\n{text}\nexport -p > .state"]

    def _done(self, block: Block, command: Sequence[str | Path]) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{block} failed:\n{block.text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _run_and_compare(self, block: Block, text: str) -> None:
        if block.expected is None:
            self._done(block, self._shell(text))
            return
        shown = pattern_of(block.expected)
        if "/v1/metrics/" not in text:
            printed = self._done(block, self._shell(text))
            assert shown.search(printed), f"{block} printed:\n{printed}\ninstead of:\n{block.expected}"
            return
        until_loaded(self.service)  # An earlier number may look right, before a repeated event is loaded.
        ends_at = time.monotonic() + PATIENCE_S  # Numbers appear within seconds: read again, as a reader would.
        while not shown.search(printed := self._done(block, self._shell(text))):
            assert time.monotonic() < ends_at, f"{block} printed:\n{printed}\ninstead of:\n{block.expected}"
            time.sleep(0.3)

    def _start(self, block: Block, text: str) -> None:
        """Start what a reader would leave running, and wait until its port answers."""
        with (self.folder / "started.log").open("ab") as log:
            self.started.append(
                subprocess.Popen(
                    self._shell(text),
                    cwd=self.folder,
                    env=self._environment(),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

        def answers() -> bool:
            assert self.started[-1].poll() is None, f"{block} ended:\n{(self.folder / 'started.log').read_text()}"
            with socket.socket() as one:
                return any(one.connect_ex(("127.0.0.1", port)) == 0 for port in self.ports.values())

        eventually(answers)

    def _bundled(self, block: Block, text: str, platform: str) -> str:
        source = self._write(block.title or f"block{block.line}.ts", text)
        kind = ["--format=esm"] if platform == "node" else ["--format=iife"]
        bundle = self.folder / "bundle.mjs"
        tool = NODE / "node_modules/.bin/esbuild"
        self._done(block, [tool, source, "--bundle", f"--platform={platform}", *kind, f"--outfile={bundle}"])
        return bundle.read_text()

    def _open(self, html: str) -> None:
        """Open a page and press its buttons. If it tracks something, wait until that is accepted."""
        self._write("opened/index.html", html)
        page = self.chromium.new_page()
        failures: list[str] = []
        answers: list[int] = []
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("requestfailed", lambda request: failures.append(f"{request.url}: {request.failure}"))
        page.on("response", lambda response: answers.append(response.status) if is_ingest(response.url) else None)
        with serving(self.folder / "opened") as address:
            page.goto(address)
            for button in page.get_by_role("button").all():
                button.click()
            ends_at = time.monotonic() + PATIENCE_S
            while tracks(html) and not answers and not failures and time.monotonic() < ends_at:
                page.wait_for_timeout(50)
        page.close()
        assert failures == [], f"the page failed: {failures}"
        check_answers(html, answers)


def tracks(html: str) -> bool:
    return "mauve.track(" in html


def check_answers(html: str, answers: list[int]) -> None:
    """Raise unless all that a page has sent was accepted, and a page that tracks something has sent it."""
    assert set(answers) <= {ACCEPTED}, f"the service answered {answers}"
    assert answers or not tracks(html), "the page tracks something, and has sent nothing"


def is_ingest(url: str) -> bool:
    return url.endswith("/v1/events")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder as a reader's own site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


def pattern_of(expected: str) -> re.Pattern[str]:
    """Return a pattern for output as a document shows it: `…` stands for anything, and a date for any date."""
    lines = [re.escape(line).replace("…", ".*") for line in expected.strip().splitlines()]
    return re.compile(re.sub(r"\d{4}\\-\d{2}\\-\d{2}", r"\\d{4}-\\d{2}-\\d{2}", r".*\n".join(lines)))
