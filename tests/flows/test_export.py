"""`mauve export`: everything that an app holds, once and exactly, from a running and from a stopped service.

Proves: export.
"""

import gzip
import json
import os
import random
import resource
import signal
import subprocess
import time
from contextlib import contextmanager

import httpx2 as httpx
import pyarrow.parquet as pq
import pytest

from support.service import (
    MAUVE,
    PATIENCE_S,
    bearer,
    clean_environment,
    commands_connected,
    eventually,
    freeze,
    mauve,
    mauve_json,
    running,
    token_for,
)

DAY_MS = 86_400_000
ANN = 'ann "\\ \n☃ 👩'
BIG = '{"n":123456789012345678901234567890,"f":1e-7,"t":"\\u2028 \\n ☃"}'


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    data = tmp_path_factory.mktemp("export") / "data"
    with running(data, "--workers", "1", environment={"MAUVE_READ_CACHE_SECONDS": "0"}) as service:
        yield service


@pytest.fixture(scope="module")
def token(service):
    return token_for(service.data)


@pytest.fixture
def app(service, token):
    return new_app(service, token)


def new_app(service, token):
    return httpx.post(
        f"{service.url}/v1/apps", timeout=PATIENCE_S, json={"name": "An app"}, headers=bearer(token)
    ).json()


def send(service, app, body, path="/v1/events"):
    content = body if isinstance(body, str) else json.dumps(body)
    headers = {**bearer(app["sk_key"]), "content-type": "application/json"}
    reply = httpx.post(f"{service.ingest_url}{path}", timeout=PATIENCE_S, content=content, headers=headers)
    assert (reply.status_code, reply.json()["rejected"]) == (202, 0), reply.text


def send_some(service, app, now_ms):
    """Send events of three days, two payments and a subscription."""
    events = [
        {"name": "view", "user": ANN, "id": "one", "at": now_ms - 2 * DAY_MS},
        {"name": "view", "user": "bob", "at": now_ms - DAY_MS},
        {"name": "view", "at": now_ms},
    ]
    send(service, app, events)
    send(service, app, f'[\n{{"name": "view",\n"user": {json.dumps(ANN)}, "props":\n{BIG}}}\n]')
    send(service, app, [{"name": "view", "user": "bob", "id": "one"}])  # a repeat
    paid = {"amount": 2**53 - 1, "currency": "eur", "earned": False, "note": "☃"}
    send(service, app, [{"name": "payment", "user": ANN, "id": "p1", "at": now_ms - DAY_MS, "props": paid}])
    send(service, app, [{"name": "payment", "user": "bob", "id": "p2", "props": {"amount": 1, "currency": "jpy"}}])
    for status in ("active", "canceled"):
        version = {"type": "subscription", "id": "s1", "status": status, "mrr": 900, "currency": "eur", "user": ANN}
        send(service, app, version, "/v1/objects")


def exported(service_or_data, app, *arguments):
    """Return the lines of an export that must succeed."""
    data = getattr(service_or_data, "data", service_or_data)
    done = mauve(data, "export", "--app", app["app_id"], *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def exporting(service, app, *arguments):
    """Start an export whose output is not read."""
    command = [str(MAUVE), "export", "--app", app["app_id"], "--data", str(service.data), *arguments]
    environment = clean_environment(service.data)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def fill(service, app):
    """Send more than a pipe holds on each of four days, so that an export has several pages."""
    now_ms = time.time_ns() // 1_000_000
    randomness = random.Random(1)  # It does not compress well.
    for day in range(4):
        texts = [randomness.randbytes(5000).hex() for _ in range(50)]
        pieces = [{str(place): text[place : place + 1000] for place in range(0, 10_000, 1000)} for text in texts]
        send(service, app, [{"name": "view", "at": now_ms - day * DAY_MS, "props": props} for props in pieces])
    return 4 * 50


def test_everything_is_exported_once_and_exactly(service, token, app):
    now_ms = time.time_ns() // 1_000_000
    send_some(service, app, now_ms)
    other = new_app(service, token)
    send(service, other, [{"name": "elsewhere", "user": ANN}])
    done = mauve(service.data, "export", "--app", app["app_id"])
    assert "exported 5 events, 2 payments, 2 subscription versions" in done.stderr
    lines = lines_of(done.stdout)
    events = [line for line in lines if line["kind"] == "event"]
    assert len({line["seq"] for line in events}) == 5
    assert [line["counted"] for line in events].count(False) == 1, "the repeat"
    assert events[0] == {
        "kind": "event",
        "name": "view",
        "user": ANN,
        "id": "one",
        "at": now_ms - 2 * DAY_MS,
        "received_at": events[0]["received_at"],
        "claimed_at": str(now_ms - 2 * DAY_MS),
        "counted": True,
        "seq": events[0]["seq"],
    }
    assert [line["props"] for line in events if "props" in line] == [json.loads(BIG)]
    assert BIG in done.stdout, "as it was sent"
    late, paid = [line for line in lines if line["kind"] == "payment"]
    assert late["props"] == {"amount": 2**53 - 1, "currency": "eur", "earned": False}
    assert (late["name"], late["id"], late["user"], late["at"]) == ("payment", "p1", ANN, now_ms - DAY_MS)
    assert (late["source"], late["payload"]["props"]["note"], paid["id"]) == ("api", "☃", "p2")
    versions = [line for line in lines if line["kind"] == "subscription"]
    assert [line["status"] for line in versions] == ["active", "canceled"]
    assert [line["mrr"] for line in versions] == [900, 900]
    assert [line["name"] for line in exported(service, other)] == ["elsewhere"]


def test_lines_can_be_sent_to_the_api_again(service, token, app):
    send_some(service, app, time.time_ns() // 1_000_000)
    lines = exported(service, app)
    copy = new_app(service, token)
    send(service, copy, [line for line in lines if line.get("counted", True) and line["kind"] != "subscription"])
    again = exported(service, copy)
    kept = ("kind", "name", "user", "id", "at", "props")

    def items(lines):
        chosen = [line for line in lines if line.get("counted", True) and line["kind"] != "subscription"]
        return sorted(json.dumps([line.get(field) for field in kept]) for line in chosen)

    assert items(again) == items(lines)


def test_parquet_files_hold_the_same_rows(service, app, tmp_path):
    send_some(service, app, time.time_ns() // 1_000_000)
    lines = exported(service, app)
    folder = tmp_path / "parquet"
    counts = mauve_json(service.data, "export", "--app", app["app_id"], "--format", "parquet", "--output", str(folder))
    assert counts == {"events": 5, "payments": 2, "subscription_versions": 2}
    assert names_in(folder) == ["events.parquet", "payments.parquet", "subscriptions.parquet"]
    events = pq.read_table(folder / "events.parquet").to_pylist()
    assert [as_line("event", row, "props") for row in events] == [line for line in lines if line["kind"] == "event"]
    payments = pq.read_table(folder / "payments.parquet").to_pylist()
    for row in payments:
        row["name"] = "payment"
        row["props"] = {field: row.pop(field) for field in ("amount", "currency", "earned")}
    found = [as_line("payment", row, "payload") for row in payments]
    assert found == [line for line in lines if line["kind"] == "payment"]
    versions = pq.read_table(folder / "subscriptions.parquet").to_pylist()
    found = [as_line("subscription", row | {"type": "subscription"}, "payload") for row in versions]
    assert found == [line for line in lines if line["kind"] == "subscription"]


def as_line(kind, row, text):
    """Return the JSON line that belongs to a row of Parquet."""
    line = {name: value for name, value in row.items() if value is not None}
    return {"kind": kind} | line | ({text: json.loads(line[text])} if text in line else {})


def test_one_person_is_exported_and_no_other(service, app):
    send_some(service, app, time.time_ns() // 1_000_000)
    lines = exported(service, app, "--user", ANN)
    assert [line["kind"] for line in lines] == ["event", "event", "payment", "subscription", "subscription"]
    assert {line.get("user", line.get("payload", {}).get("user")) for line in lines} == {ANN}
    assert exported(service, app, "--user", "ann") == []


def test_days_are_chosen_by_the_time_of_occurrence(service, app):
    now_ms = time.time_ns() // 1_000_000
    send_some(service, app, now_ms)
    day = time.strftime("%Y-%m-%d", time.gmtime((now_ms - DAY_MS) / 1000))
    lines = exported(service, app, "--from", day, "--to", day)
    assert [(line["kind"], line["at"]) for line in lines] == [("event", now_ms - DAY_MS), ("payment", now_ms - DAY_MS)]
    assert len(exported(service, app, "--to", day)) == 3
    assert len(exported(service, app, "--from", day)) == 8


def test_an_empty_app_is_an_empty_export(service, app, tmp_path):
    assert exported(service, app) == []
    folder = tmp_path / "empty"
    mauve_json(service.data, "export", "--app", app["app_id"], "--format", "parquet", "--output", str(folder))
    assert [pq.read_table(file).num_rows for file in folder.iterdir()] == [0, 0, 0]


def test_a_file_is_private_whole_and_not_replaced_by_accident(service, app, tmp_path):
    send_some(service, app, time.time_ns() // 1_000_000)
    plain, compressed = tmp_path / "app.jsonl", tmp_path / "app.jsonl.gz"
    for file in (plain, compressed):
        assert exported(service, app, "--output", str(file)) == []
        assert file.stat().st_mode & 0o777 == 0o600
    assert gzip.decompress(compressed.read_bytes()) == plain.read_bytes()
    assert lines_of(plain.read_text()) == exported(service, app)
    again = mauve(service.data, "export", "--app", app["app_id"], "--output", str(plain))
    assert (again.returncode, "--force" in again.stderr) == (2, True)
    send(service, app, [{"name": "more"}])
    exported(service, app, "--output", str(plain), "--force")
    assert '"more"' in plain.read_text()
    folder = tmp_path / "parquet"
    for _ in range(2):
        exported(service, app, "--format", "parquet", "--output", str(folder), "--force")
    (folder / "mine").touch()
    refused = mauve(
        *(service.data, "export", "--app", app["app_id"], "--format", "parquet", "--output", str(folder), "--force")
    )
    assert (refused.returncode, "name a new folder" in refused.stderr) == (2, True)
    assert names_in(tmp_path) == ["app.jsonl", "app.jsonl.gz", "parquet"]


def test_wrong_use_is_refused_with_what_to_do(service, app, tmp_path):
    for none in ("app_none", "", "An app", "../data", app["public_id"], "app_\n☃'; --", "%"):
        unknown = mauve(service.data, "export", "--app", none)
        assert (unknown.returncode, "no app" in unknown.stderr, unknown.stdout) == (2, True, ""), none
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    for arguments, words in (
        (("--user", ""), "--user is empty"),
        (("--format", "parquet"), "--output"),
        (("--format", "csv"), "--help"),
        (("--json",), "--output"),
        (("--from", "2026-02-02", "--to", "2026-02-01"), "swap them"),
        (("--from", "yesterday"), "--help"),
        (("--test",), "no test environment"),
        (("--output", str(tmp_path / "none" / "file")), "no directory"),
        (("--output", str(tmp_path), "--force"), "not a regular file"),
        (("--output", "/dev/null", "--force"), "not a regular file"),
        (("--output", str(link), "--force"), "not a regular file"),
        (("--output", str(link)), "already exists"),
        (("--format", "parquet", "--output", str(link), "--force"), "name a new folder"),
    ):
        done = mauve(service.data, "export", "--app", app["app_id"], *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert words in done.stderr, arguments


def test_a_place_that_cannot_be_written_is_named(service, app):
    for format_ in ("jsonl", "parquet"):
        done = mauve(
            *(service.data, "export", "--app", app["app_id"], "--format", format_, "--output", "/proc/app")
        )  # Not even root can create it.
        assert (done.returncode, "/proc/app could not be written" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("name", ["app.jsonl", "app.jsonl.gz", "parquet", None])
def test_a_full_disk_ends_the_command_with_an_error_and_leaves_no_file(service, app, tmp_path, name):
    fill(service, app)
    target = tmp_path / "exports"
    target.mkdir()
    output = [] if name is None else ["--output", str(target / name)]
    command = [str(MAUVE), "export", "--app", app["app_id"], "--data", str(service.data), *output]
    command += ["--format", "parquet"] if name == "parquet" else []
    with (tmp_path / "stdout").open("wb") as stdout:
        done = subprocess.run(
            command,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=clean_environment(service.data),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
            check=False,
        )
    place = b"standard output" if name is None else str(target / name).encode()
    assert (done.returncode, place + b" could not be written (" in done.stderr) == (1, True), done.stderr
    assert b"free space" in done.stderr
    assert [words for words in (b"exported", b"Traceback", b"Exception") if words in done.stderr] == []
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_a_killed_command_leaves_a_draft_that_hinders_none(service, app, tmp_path, format_):
    count = fill(service, app)
    arguments = ("--format", format_, "--output", str(tmp_path / "app"))
    with exporting(service, app, *arguments) as process:
        eventually(lambda: list(tmp_path.iterdir()))
        process.kill()
        process.wait(timeout=PATIENCE_S)
    (draft,) = names_in(tmp_path)
    assert (draft.startswith(".app."), draft.endswith(".partial")) == (True, True)
    counts = mauve_json(service.data, "export", "--app", app["app_id"], *arguments)
    assert counts["events"] == count
    assert names_in(tmp_path) == [draft, "app"]


def test_a_slow_reader_holds_up_no_other_and_gets_everything(service, app):
    count = fill(service, app)
    with exporting(service, app) as slow:
        assert slow.stdout.readline(), "it has begun, and its output is full"
        assert len(exported(service, app)) == count, "another export is not held up"
        reply = httpx.get(
            f"{service.url}/v1/metrics/event_count", params={"name": "view"}, headers=bearer(app["sk_key"])
        )
        assert reply.json()["data"] == [{"name": "view", "count": count}]
        send(service, app, [{"name": "late"}])
        assert slow.poll() is None
        rest, errors = slow.communicate(timeout=PATIENCE_S)
        assert slow.returncode == 0, errors
    assert len(rest.splitlines()) == count - 1
    assert b"late" not in rest, "it is what was stored when it began"


def test_an_output_that_is_closed_ends_the_command_quietly(service, app):
    fill(service, app)
    with exporting(service, app) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=PATIENCE_S) == 1
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.embedded
def test_a_killed_command_leaves_nothing_in_the_core(service, app):
    count = fill(service, app)
    eventually(lambda: commands_connected(service.data) == 0)
    with exporting(service, app) as process:
        process.stdout.readline()
        eventually(lambda: commands_connected(service.data) == 1)
        process.kill()
        process.wait(timeout=PATIENCE_S)
        eventually(lambda: commands_connected(service.data) == 0)
    assert len(exported(service, app)) == count
    assert "Traceback" not in service.log()


@pytest.mark.embedded
def test_a_core_that_is_killed_midway_ends_the_command_with_an_error(tmp_path):
    data = tmp_path / "data"
    with running(data, "--workers", "1") as service:
        app = new_app(service, token_for(data))
        fill(service, app)
        with exporting(service, app) as process:
            process.stdout.readline()
            os.kill(service.child_pids()["core"], signal.SIGKILL)
            _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, b"the core stopped" in errors) == (1, True), errors
        assert b"exported" not in errors


@pytest.mark.embedded
def test_a_command_that_ends_early_leaves_no_file(tmp_path):
    data, target = tmp_path / "data", tmp_path / "exports"
    target.mkdir()
    patient = {"MAUVE_HANG_SECONDS": "0"}  # The frozen core is not replaced, however long the commands take to start.
    with running(data, "--workers", "1", environment=patient) as service:
        app = new_app(service, token_for(data))
        send(service, app, [{"name": "view"}])
        core = service.child_pids()["core"]
        freeze(core)  # so that the command waits
        for format_ in ("jsonl", "parquet"):
            with exporting(service, app, "--format", format_, "--output", str(target / "app")) as process:
                eventually(lambda: list(target.iterdir()))
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, list(target.iterdir())) == (130, []), errors
        with exporting(service, app, "--output", str(target / "app")) as process:
            eventually(lambda: list(target.iterdir()))
            os.kill(core, signal.SIGKILL)
            _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, b"the core" in errors, list(target.iterdir())) == (1, True, []), errors
