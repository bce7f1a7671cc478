"""Data directories kept from each release: make one, pack it, unpack it, and ask for every metric.

An archive holds a directory as a release left it when it was killed, and keys for it that open nothing else. The notes
beside it, as JSON, say which tables it has and what that release answered.
"""

import io
import json
import os
import signal
import sqlite3
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import zstandard

from mauve.metrics.registry import METRICS
from mauve.stores.sql.migrate import CATALOG, LEDGER
from support.billing import SECRET_A, SECRET_B, provider_of, sample_bytes, signed_a, signed_b
from support.service import (
    EVERY_SCOPE,
    MAUVE,
    PATIENCE_S,
    bearer,
    child_pids,
    clean_environment,
    eventually,
    mauve_json,
    post_events,
)

DATA = Path(__file__).parents[1] / "upgrades" / "data"
BACKLOG = 5  # events that were acknowledged and not loaded
Window = tuple[str, str]
_DAYS = 7
_DEMO_DAYS = 10
_KEYS = "keys.json"
_NAMES = ("opened", "closed", "user_signup")
_LEFT_OUT = {"cache.db"}
_DELIVERIES = (
    *("stripe_invoice_paid_basic", "stripe_invoice_paid_jpy", "stripe_subscription_annual_qty3"),
    *("stripe_subscription_quarterly", "stripe_invoice_paid_marketplace_destination_acacia"),
    *("polar_order_paid_renewal", "polar_subscription_weekly_x2", "polar_subscription_annual_seats3"),
)


@contextmanager
def serving(data: Path, **settings: str) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """Run the service; yield its addresses and its process. Nothing in the directory is open afterwards."""
    options = ("--port", "0", "--ingest-port", "0", "--workers", "1", "--data", str(data), "--json")
    with (data.parent / f"{data.name}.log").open("ab") as log:
        process = subprocess.Popen(
            [MAUVE, "serve", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=clean_environment(data, **settings),
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (data.parent / f"{data.name}.log").read_text()
        yield json.loads(line), process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE_S)
        process.stdout.close()


def kill_service(process: subprocess.Popen[str]) -> None:
    """Kill a service and its children, as a power cut would."""
    pids = [process.pid, *child_pids(process.pid).values()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    process.wait(timeout=PATIENCE_S)


class Notes(NamedTuple):
    revisions: dict[str, str]
    window: Window  # of every question
    demo_project: str
    answers: dict[str, list[Any]]  # the rows of every metric, of both apps


def make(data: Path) -> Notes:
    """Fill a data directory, and return the notes about it."""
    demo = mauve_json(data, "demo", "--days", str(_DEMO_DAYS))  # has days that are closed
    demo_token = mauve_json(data, "token", "mint", "--org", demo["org_id"], "--scopes", "metrics:read")["token"]
    org_id = mauve_json(data, "org", "create", "Acme")["org_id"]
    token = mauve_json(data, "token", "mint", "--org", org_id, "--scopes", EVERY_SCOPE)["token"]
    today = datetime.now(tz=UTC).date()
    window = (today - timedelta(days=_DEMO_DAYS)).isoformat(), today.isoformat()
    with serving(data, MAUVE_READ_CACHE_SECONDS="0") as (at, _):
        app, waiting = (_new_app(at["url"], token, name) for name in ("App", "Backlog"))
        _send(at, app)
        _deliver(at["ingest_url"], app["public_id"])
        _until_loaded(at["url"])
        eventually(lambda: _has_closed_days(data))
        eventually(lambda: _has_every_event(ask_all(at["url"], app["sk_key"], window)))
        keys = {"app": app["sk_key"], "backlog": waiting["sk_key"], "demo": demo_token}
        answers = every_answer(at["url"], keys, demo["apps"][0]["public_id"], window)
    with serving(data, MAUVE_INGEST_FLUSH_SECONDS="30") as (at, process):
        eventually(lambda: post_events(at["ingest_url"], waiting["sk_key"]) == 202)
        for _ in range(BACKLOG - 1):
            assert post_events(at["ingest_url"], waiting["sk_key"]) == 202
        kill_service(process)
    (data.parent / _KEYS).write_text(json.dumps(keys))
    return Notes(revisions_in(data), window, demo["apps"][0]["public_id"], answers)


def every_answer(url: str, keys: dict[str, str], demo_project: str, window: Window) -> dict[str, list[Any]]:
    """Return the rows of every metric of the app that was sent to, and of one of the demo."""
    asked = {"app": ask_all(url, keys["app"], window), "demo": ask_all(url, keys["demo"], window, demo_project)}
    return {f"{app} {metric}": rows for app, answers in asked.items() for metric, rows in answers.items()}


def ask_all(url: str, key: str, window: Window, project: str = "") -> dict[str, list[Any]]:
    answers = {}
    for metric in METRICS.values():
        for name in _NAMES if metric.needs_name else ("",):
            asked = {"date_from": window[0], "date_to": window[1], "name": name, "project": project}
            given = {parameter: value for parameter, value in asked.items() if value}
            reply = httpx.get(f"{url}/v1/metrics/{metric.name}", params=given, headers=bearer(key), timeout=PATIENCE_S)
            assert reply.status_code == 200, reply.text
            answers[f"{metric.name} {name}".strip()] = reply.json()["data"]
    return answers


def pack(data: Path, name: str, notes: Notes) -> Path:
    """Store a directory and the notes about it for the tests."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(data.parent / _KEYS, _KEYS, filter=_without_owner)
        for path in sorted(data.rglob("*")):
            place = f"data/{path.relative_to(data).as_posix()}"
            is_special = path.is_socket() or path.suffix == ".lock" or path.name.removesuffix("-wal") in _LEFT_OUT
            if not is_special and not path.name.endswith("-shm") and "spare" not in path.parts:
                tar.add(path, place, recursive=False, filter=_without_owner)
    DATA.mkdir(exist_ok=True)
    archive = DATA / f"{name}.tar.zst"
    archive.write_bytes(zstandard.ZstdCompressor(level=19).compress(packed.getvalue()))
    lines = [f"  {json.dumps(metric)}: {json.dumps(rows)}" for metric, rows in notes.answers.items()]
    about = {name: value for name, value in notes._asdict().items() if name != "answers"}
    heads = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in about.items()]
    text = "{\n" + ",\n".join([*heads, ' "answers": {\n' + ",\n".join(lines) + "\n }"]) + "\n}\n"
    (DATA / f"{name}.json").write_text(text)
    return archive


def unpack(name: str, folder: Path) -> tuple[Path, dict[str, str]]:
    """Create a directory as a release left it, in a new folder; return it with its keys."""
    content = zstandard.ZstdDecompressor().stream_reader((DATA / f"{name}.tar.zst").read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(folder, filter="data")
    data = folder / "data"
    data.chmod(0o700)
    return data, json.loads((folder / _KEYS).read_text())


def read_notes(name: str) -> Notes:
    return Notes(**json.loads((DATA / f"{name}.json").read_text()))


def revisions_in(data: Path) -> dict[str, str]:
    found = {}
    for chain in (CATALOG, LEDGER):
        with closing(sqlite3.connect(data / f"{chain.name}.db")) as database:
            ((found[chain.name],),) = database.execute(f"SELECT version_num FROM {chain.version_table}").fetchall()
    return found


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _new_app(url: str, token: str, name: str) -> dict[str, Any]:
    created = httpx.post(f"{url}/v1/apps", json={"name": name}, headers=bearer(token), timeout=PATIENCE_S)
    assert created.status_code == 201, created.text
    app: dict[str, Any] = created.json()
    for provider, secret in (("biller_a", SECRET_A), ("biller_b", SECRET_B)):
        path = f"{url}/v1/apps/{app['app_id']}/webhooks/{provider}"
        saved = httpx.put(path, json={"secret": secret}, headers=bearer(token), timeout=PATIENCE_S)
        assert saved.status_code == 204, saved.text
    return app


def _send(at: dict[str, str], app: dict[str, Any]) -> None:
    now_ms = int(time.time() * 1000)
    key = bearer(app["sk_key"])
    eventually(lambda: post_events(at["ingest_url"], app["sk_key"]) == 202)
    for day in range(_DAYS):
        at_ms = now_ms - day * 86_400_000
        events = [
            {"name": _NAMES[number % 3], "user": f"user-{number % (11 + day)}", "id": f"{day}-{number}", "at": at_ms}
            for number in range(40 + day)
        ]
        payments = [
            {"name": "payment", "id": f"pay-{day}-{currency}", "at": at_ms, "props": {"amount": amount + day} | more}
            for currency, amount, more in (
                ("eur", 1999, {"currency": "eur"}),
                ("jpy", 500, {"currency": "jpy"}),
                ("usd", 70_000, {"currency": "usd", "earned": False}),
            )
        ]
        subscriptions = [
            {"type": "subscription", "id": f"sub-{number}", "status": "active" if number % 4 else "canceled"}
            | {"mrr": 1000 + 100 * number + day, "currency": ("eur", "usd")[number % 2]}
            | {"at": datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()}
            for number in range(day, 10)
        ]
        for path, body in (("events", events), ("events", [*events[:5], *payments]), ("objects", subscriptions)):
            reply = httpx.post(f"{at['ingest_url']}/v1/{path}", json=body, headers=key, timeout=PATIENCE_S)
            assert reply.status_code == 202, reply.text
            assert reply.json()["rejected"] == 0, reply.text


def _deliver(url: str, public_id: str) -> None:
    for number, name in enumerate(_DELIVERIES):
        body, at_s = sample_bytes(name), int(time.time())
        provider = provider_of(name).value
        headers = (
            signed_a(body, at=at_s) if provider == "biller_a" else signed_b(body, at=at_s, message_id=f"m{number}")
        )
        path = f"{url}/v1/webhooks/{provider}/{public_id}"
        reply = eventually(lambda: _accepted(path, body, headers))  # noqa: B023 - used at once
        assert reply["ok"], reply


def _accepted(path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any] | None:
    headers = headers | {"content-type": "application/json"}
    reply = httpx.post(path, content=body, headers=headers, timeout=PATIENCE_S)
    return reply.json() if reply.status_code == 200 else None


def _until_loaded(url: str) -> None:
    def lag_ms() -> float:
        return float(httpx.get(f"{url}/readyz", timeout=PATIENCE_S).json().get("load_lag_ms", 1e9))

    asked_at = time.monotonic()
    eventually(lambda: time.monotonic() - lag_ms() / 1000 > asked_at)


def _has_every_event(answers: dict[str, list[Any]]) -> bool:
    sent = 1 + sum(40 + day for day in range(_DAYS))
    return sum(int(row["count"]) for row in answers["event_names"]) == sent


def _has_closed_days(data: Path) -> bool:
    with closing(sqlite3.connect(data / "ledger.db", timeout=PATIENCE_S)) as ledger:
        ((days,),) = ledger.execute("SELECT count(*) FROM day_users")
        return int(days) > 0
