"""Importing our own events: every metric as if they had been sent, once, however often it is interrupted."""

import gzip
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import httpx2 as httpx
import pytest
from click.testing import CliRunner

from mauve.cli import import_ as import_command
from mauve.metrics.registry import METRICS
from support.service import (
    MAUVE,
    PATIENCE_S,
    bearer,
    clean_environment,
    commands_connected,
    eventually,
    is_alive,
    ledger_rows,
    mauve,
    mauve_json,
    running,
    stored_events,
    token_for,
    until_loaded,
)

NO_CACHE = {"MAUVE_READ_CACHE_SECONDS": "0"}
DAY_MS = 86_400_000
NOW_MS = int(time.time() * 1000)
MIDNIGHT_MS = NOW_MS // DAY_MS * DAY_MS
FIRST_DAYS_AGO = 300


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("import") / "data", "--workers", "1", environment=NO_CACHE) as service:
        yield service


@pytest.fixture
def app(service):
    return an_app(service)


def an_app(service):
    headers = bearer(token_for(service.data))
    app = httpx.post(f"{service.url}/v1/apps", timeout=PATIENCE_S, json={"name": "An app"}, headers=headers).json()
    eventually(lambda: is_known(service, app))
    return app


def is_known(service, app):
    """Return whether the worker knows the key: it refuses an empty name, and not the key."""
    reply = httpx.post(
        f"{service.ingest_url}/v1/events", timeout=PATIENCE_S, json=[{"name": ""}], headers=bearer(app["sk_key"])
    )
    return reply.status_code == 422


def day_ago(days):
    return time.strftime("%Y-%m-%d", time.gmtime((MIDNIGHT_MS - days * DAY_MS) / 1000))


def read(service, app, metric, first=None, last=None, name="view"):
    parameters = {"date_from": first or day_ago(FIRST_DAYS_AGO), "date_to": last or day_ago(0), "name": name}
    reply = httpx.get(
        f"{service.url}/v1/metrics/{metric}", timeout=PATIENCE_S, params=parameters, headers=bearer(app["sk_key"])
    )
    return reply.json().get("data", reply.text)


def every_metric(service, app, **window):
    return {metric: read(service, app, metric, **window) for metric in METRICS}


def write_lines(path, items):
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def history(count=400, days=60, until=12, seed=1):
    """Return events and payments of the days before the last ones, in order of time."""
    rng = random.Random(seed)
    items = []
    for place in range(count):
        at = MIDNIGHT_MS - until * DAY_MS - (count - place) * days * DAY_MS // count
        name = rng.choice(["view", "view", "user_signup", "report"])
        items.append(
            {"name": name, "user": f"u{rng.randrange(60)}", "id": f"{seed}-{place}", "at": at, "props": {"n": place}}
        )
        if place % 10 == 0:
            money = {"amount": place + 1, "currency": rng.choice(["eur", "usd"]), "earned": place % 20 == 0}
            items.append({"name": "payment", "user": "u1", "id": f"p{seed}-{place}", "at": at, "props": money})
    return items


def import_(service, app, *arguments):
    return mauve_json(service.data, "import", "--app", app["app_id"], *map(str, arguments))


def refused(service, app, *arguments):
    done = mauve(service.data, "import", "--app", app["app_id"], *map(str, arguments))
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_the_help_shows_how_to_import_and_what_else_there_is():
    shown = CliRunner().invoke(import_command.import_, ["--help"]).output
    assert [word for word in ("FILE…", "--dry-run", "--max-bad", "list", "undo") if word not in shown] == []


def test_every_metric_equals_that_of_the_same_events_sent(service, tmp_path):
    recent = [{**item, "at": NOW_MS - place * 60_000} for place, item in enumerate(history(count=200))]
    recent.append({"name": "view", "at": NOW_MS - 3 * DAY_MS, "user": "without an id"})
    version = {"type": "subscription", "id": "s1", "status": "active", "mrr": 900, "currency": "eur"}
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW_MS / 1000 - 86_400 * 3))
    sent, imported = an_app(service), an_app(service)
    reply = httpx.post(
        f"{service.ingest_url}/v1/events", timeout=PATIENCE_S, json=recent, headers=bearer(sent["sk_key"])
    )
    assert reply.json()["accepted"] == len(recent), reply.text
    httpx.post(
        f"{service.ingest_url}/v1/objects",
        timeout=PATIENCE_S,
        json=[version | {"at": at}],
        headers=bearer(sent["sk_key"]),
    )
    path = write_lines(tmp_path / "all.jsonl", [*recent, version | {"at": at, "kind": "subscription"}])
    (done,) = import_(service, imported, "--format", "events", path)
    until_loaded(service)
    expected = every_metric(service, sent)
    assert expected["event_count"] != [{"name": "view", "count": 0}]
    assert every_metric(service, imported) == expected
    assert done["counts"]["events"] + done["counts"]["payments"] == len(recent)


def test_totals_equal_those_of_the_file_and_days_that_were_closed_are_counted_again(service, app, tmp_path):
    items = history()
    path = write_lines(tmp_path / "history.jsonl", items)
    (dry,) = import_(service, app, "--format", "events", "--dry-run", path)
    assert read(service, app, "event_count") == [{"name": "view", "count": 0}], "a dry run stores nothing"
    eventually(lambda: ledger_rows(service.data, "SELECT through FROM closed_days"))
    (done,) = import_(service, app, "--format", "events", path)
    views = [item for item in items if item["name"] == "view"]
    assert read(service, app, "event_count") == [{"name": "view", "count": len(views)}]
    assert dry["events"]["view"] == len(views)
    assert (dry["first_day"], dry["last_day"]) == (done["first_day"], done["last_day"])
    users = {item["user"] for item in items if item["name"] != "payment"}
    assert read(service, app, "mau") == [{"mau": len(users)}]
    revenue = sum(row["revenue"] for row in read(service, app, "revenue") if row["currency"] == "eur")
    assert revenue == dry["revenue"]["eur"]
    until_closed(service)
    assert read(service, app, "mau") == [{"mau": len(users)}], "also from the stored counts"


def test_an_export_imported_into_another_app_gives_the_same_metrics(service, app, tmp_path):
    """Of sent and imported rows, repeats, payments of nothing, and texts with any characters."""
    headers = bearer(app["sk_key"])
    sent = [{**item, "id": f"sent-{place}", "at": NOW_MS - place * 60_000} for place, item in enumerate(history(200))]
    for _ in range(2):  # The second time, all of them are repeats.
        reply = httpx.post(f"{service.ingest_url}/v1/events", timeout=PATIENCE_S, json=sent, headers=headers)
        assert reply.status_code == 202, reply.text
    versions = [
        {
            "type": "subscription",
            "id": "s1",
            "status": status,
            "mrr": 900,
            "currency": "eur",
            "at": f"{day_ago(n)}T01:00:00Z",
        }
        for n, status in ((3, "active"), (2, "paused \u2028\0"), (1, "active"))
    ]
    reply = httpx.post(f"{service.ingest_url}/v1/objects", timeout=PATIENCE_S, json=versions, headers=headers)
    assert reply.status_code == 202, reply.text
    old = [
        *history(count=300, seed=9),
        {"name": "payment", "id": "zero", "at": 5, "props": {"amount": 0, "currency": "jpy"}},
    ]
    import_(service, app, "--format", "events", write_lines(tmp_path / "old.jsonl", old))
    path = tmp_path / "all.jsonl.gz"
    counts = mauve_json(service.data, "export", "--app", app["app_id"], "--output", str(path))
    other = an_app(service)
    (done,) = import_(service, other, "--format", "events", path)
    assert done["rows"] == counts["events"] + counts["payments"] + counts["subscription_versions"]
    assert done["counts"]["skipped"] == 200, "those that were not counted"
    expected = every_metric(service, app)
    assert expected["mrr"] == [{"currency": "eur", "mrr": 900}]
    assert every_metric(service, other) == expected
    again = tmp_path / "again.jsonl"
    mauve_json(service.data, "export", "--app", other["app_id"], "--output", str(again))
    assert kept_fields(again.read_text()) == kept_fields(gzip.decompress(path.read_bytes()).decode())


def test_a_payment_of_an_export_may_be_sent_again_and_stays_when_the_import_is_undone(service, app, tmp_path):
    money = {"amount": 1999, "currency": "eur", "plan": "pro"}
    sent = {"name": "payment", "id": "inv_1", "user": "ann", "at": NOW_MS - 30 * DAY_MS, "props": money}
    assert send(service, app, sent).status_code == 202
    path = tmp_path / "all.jsonl"
    mauve_json(service.data, "export", "--app", app["app_id"], "--output", str(path))
    other = an_app(service)
    (done,) = import_(service, other, "--format", "events", path)
    assert done["counts"]["payments"] == 1
    assert send(service, other, sent).status_code == 202, "a client's retry"
    mauve_json(service.data, "import", "undo", "--yes", done["import"])
    assert send(service, other, sent).status_code == 202
    assert sum(row["revenue"] for row in read(service, other, "revenue")) == 1999
    assert sum(row["revenue"] for row in read(service, app, "revenue")) == 1999


def send(service, app, *items):
    return httpx.post(f"{service.ingest_url}/v1/events", timeout=PATIENCE_S, json=items, headers=bearer(app["sk_key"]))


def kept_fields(text):
    """Return what an export says about each counted row, without what belongs to the installation."""
    own = ("received_at", "claimed_at", "seq", "counted", "source", "payload")
    rows = [json.loads(line) for line in text.split("\n") if line]
    kept = [{name: row[name] for name in row if name not in own} for row in rows if row.get("counted", True)]
    return sorted(json.dumps(row, sort_keys=True) for row in kept)


def until_closed(service):
    limit = day_ago(9)
    eventually(lambda: ledger_rows(service.data, "SELECT through FROM closed_days")[0][0] >= limit)


def test_a_file_is_imported_once_and_undone_as_a_whole(service, app, tmp_path):
    path = write_lines(tmp_path / "once.jsonl", history(seed=2))
    before = every_metric(service, app)
    (done,) = import_(service, app, "--format", "events", path)
    after = every_metric(service, app)
    assert after != before
    assert done["import"] in refused(service, app, "--format", "events", path)
    copy = write_lines(tmp_path / "copy.jsonl", [*history(seed=2), {"name": "view", "at": NOW_MS}])
    (second,) = import_(service, app, "--format", "events", copy)
    assert second["counts"]["events"] == 1, "ids that are known do not count"
    assert second["counts"]["payments"] == 0
    assert "first" in mauve(service.data, "import", "undo", "--yes", done["import"]).stderr
    mauve_json(service.data, "import", "undo", "--yes", second["import"])
    assert every_metric(service, app) == after
    unconfirmed = mauve(service.data, "import", "undo", done["import"])
    assert (unconfirmed.returncode, "--yes" in unconfirmed.stderr) == (2, True)
    assert every_metric(service, app) == after
    assert mauve_json(service.data, "import", "undo", "--yes", done["import"])["state"] == "undone"
    assert every_metric(service, app) == before
    until_closed(service)
    assert every_metric(service, app) == before
    states = [
        (each["import"], each["state"]) for each in mauve_json(service.data, "import", "list", "--app", app["app_id"])
    ]
    assert states == [(second["import"], "undone"), (done["import"], "undone")]
    import_(service, app, "--format", "events", path)
    assert every_metric(service, app) == after


def test_undoing_leaves_what_was_sent_on_the_same_days(service, app, tmp_path):
    sent = [{"name": "view", "user": f"u{n}", "at": NOW_MS - n * DAY_MS // 2} for n in range(10)]
    headers = bearer(app["sk_key"])
    assert (
        httpx.post(f"{service.ingest_url}/v1/events", timeout=PATIENCE_S, json=sent, headers=headers).status_code == 202
    )
    until_loaded(service)
    before = every_metric(service, app)
    path = write_lines(
        tmp_path / "a.jsonl", [{"name": "view", "user": f"u{n}", "at": NOW_MS - n * DAY_MS // 3} for n in range(20)]
    )
    (done,) = import_(service, app, "--format", "events", path)
    assert read(service, app, "mau") == [{"mau": 20}]
    later = [{"name": "view", "user": "later", "at": NOW_MS - DAY_MS}]
    httpx.post(f"{service.ingest_url}/v1/events", timeout=PATIENCE_S, json=later, headers=headers)
    until_loaded(service)
    mauve_json(service.data, "import", "undo", "--yes", done["import"])
    assert read(service, app, "mau") == [{"mau": 11}], "with the user who came after the import"
    assert read(service, app, "volume") == before["volume"]


def test_bad_rows_stop_an_import_before_anything_is_stored(service, app, tmp_path):
    items = [{"name": "view", "at": NOW_MS}, {"name": "", "at": NOW_MS}, {"name": "view"}, {"kind": "other"}]
    path = write_lines(tmp_path / "bad.jsonl", [*items, {"name": "view", "at": NOW_MS + DAY_MS}])
    with path.open("a") as file:
        file.write("not json\n\n")
    message = refused(service, app, "--format", "events", path)
    for row in (2, 3, 4, 5, 6):
        assert f"row {row}: " in message
    assert "--max-bad 5" in message
    assert "--max-bad 5" in refused(service, app, "--format", "events", "--dry-run", path)
    (dry,) = import_(service, app, "--format", "events", "--dry-run", "--max-bad", "5", path)
    assert dry["bad"] == 5
    assert read(service, app, "event_count") == [{"name": "view", "count": 0}]
    (done,) = import_(service, app, "--format", "events", "--max-bad", "5", path)
    assert (done["counts"]["events"], done["counts"]["bad"], done["counts"]["skipped"]) == (1, 5, 1)


def test_files_before_a_bad_one_are_imported_and_reported(service, app, tmp_path):
    good = write_lines(tmp_path / "good.jsonl", [{"name": "view", "at": NOW_MS}])
    bad = write_lines(tmp_path / "bad.jsonl", [{"name": "", "at": NOW_MS}])
    done = mauve(service.data, "import", "--app", app["app_id"], "--format", "events", str(good), str(bad))
    assert (done.returncode, "1 row of good.jsonl: 1 event" in done.stdout) == (2, True), done.stdout
    assert "nothing of bad.jsonl was stored" in done.stderr


def test_erasing_a_user_reaches_imported_rows(service, app, tmp_path):
    packed = tmp_path / "ann.jsonl.gz"
    lines = [{"name": "view", "user": "ann", "at": MIDNIGHT_MS - 100 * DAY_MS}] * 3
    lines.append(
        {"name": "payment", "user": "ann", "id": "ann-1", "at": MIDNIGHT_MS, "props": {"amount": 5, "currency": "eur"}}
    )
    packed.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    import_(service, app, "--format", "events", packed)
    before = every_metric(service, app)
    erased = mauve_json(service.data, "erase-user", "--app", app["app_id"], "ann", "--yes")
    assert (erased["events"], erased["payments"]) == (3, 1)
    assert every_metric(service, app) == before


def test_a_killed_import_continues_and_counts_every_row_once(tmp_path):
    """Kill the core in the middle of a chunk, and the command itself, several times."""
    data = tmp_path / "data"
    path = write_lines(tmp_path / "long.jsonl", history(count=130_000, days=40, seed=3))
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        app = an_app(service)
        command = [str(MAUVE), "import", "--app", app["app_id"], "--format", "events", str(path), "--data", str(data)]
        for victim in ("core", "command", "core"):
            process = subprocess.Popen(
                command, env=clean_environment(data), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
            eventually(lambda: commands_connected(data) == 1)
            before = stored_parts(data)
            eventually(lambda known=before, at=process: stored_parts(data) - known or at.poll() is not None)
            pid = service.child_pids()["core"] if victim == "core" else process.pid
            os.kill(pid, signal.SIGKILL)
            process.communicate()
            assert process.returncode != 0, "it was interrupted"
            if victim == "core":
                eventually(lambda pid=pid: not is_alive(pid) and service.child_pids().get("core", pid) != pid)
                eventually(lambda: mauve(data, "ready").returncode == 0)
        (done,) = import_(service, app, "--format", "events", path)
        assert (done["state"], done["counts"]["events"], done["counts"]["repeats"]) == ("done", 130_000, 0)
        names = {row["name"]: row["count"] for row in read(service, app, "event_names")}
        assert sum(names.values()) == 130_000
        assert done["counts"]["payments"] == 13_000
    assert len({row[-1] for row in stored_events(data)}) == len(stored_events(data)) == 130_000


def stored_parts(data):
    """Return the parts of the warehouse's tables: the core adds some in the middle of a chunk."""
    return set((data / "warehouse").glob("store/*/*/*"))


def importing(service, app, path):
    """Start to import a file in a process of its own."""
    command = [str(MAUVE), "import", "--app", app["app_id"], "--format", "events", str(path)]
    return subprocess.Popen(
        [*command, "--data", str(service.data)],
        env=clean_environment(service.data),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def test_commands_that_import_the_same_file_at_once_count_every_row_once(service, app, tmp_path):
    path = write_lines(tmp_path / "both.jsonl", history(count=60_000, days=40, seed=4))
    both = [importing(service, app, path) for _ in range(2)]
    messages = [process.communicate()[1] for process in both]
    for process, message in zip(both, messages, strict=True):
        assert process.returncode == 0 or "another command" in message or "was imported before" in message, message
    if not any(process.returncode == 0 for process in both):
        import_(service, app, "--format", "events", path)
    (done,) = mauve_json(service.data, "import", "list", "--app", app["app_id"])
    assert (done["state"], done["counts"]["events"], done["counts"]["payments"]) == ("done", 60_000, 6_000)
    assert sum(row["count"] for row in read(service, app, "event_names")) == 60_000


def test_an_import_that_is_undone_or_whose_app_is_archived_meanwhile_is_refused(service, app, tmp_path):
    before = every_metric(service, app)
    path = write_lines(tmp_path / "undone.jsonl", history(count=130_000, days=40, seed=5))
    process = importing(service, app, path)
    eventually(lambda: running_imports(service, app) or process.poll() is not None)
    (begun,) = running_imports(service, app)
    mauve_json(service.data, "import", "undo", "--yes", begun)
    _, message = process.communicate()
    assert (process.returncode, "was undone" in message) == (2, True), message
    assert every_metric(service, app) == before
    assert "nothing of it is left" in mauve(service.data, "import", "undo", "--yes", begun).stderr
    process = importing(service, app, path)
    eventually(lambda: running_imports(service, app) or process.poll() is not None)
    mauve_json(service.data, "app", "archive", app["app_id"])
    _, message = process.communicate()
    assert (process.returncode, "archived" in message) == (2, True), message


def running_imports(service, app):
    listed = mauve_json(service.data, "import", "list", "--app", app["app_id"])
    return [each["import"] for each in listed if each["state"] == "running"]


def test_without_a_service_the_command_imports_by_itself(tmp_path):
    data = tmp_path / "data"
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        app = an_app(service)
    (done,) = import_(service, app, "--format", "events", write_lines(Path(tmp_path / "x.jsonl"), history(count=50)))
    assert done["counts"]["events"] == 50
    assert len(stored_events(data)) == 50


def test_an_import_of_days_whose_ids_were_forgotten_says_that_events_may_count_again(tmp_path):
    data = tmp_path / "data"
    with running(data, "--workers", "1", environment=NO_CACHE | {"MAUVE_RAW_RETENTION_DAYS": "2"}) as service:
        eventually(lambda: "raw_events_forgotten" in service.log())
        app = an_app(service)
        for age, is_warned in ((2, False), (3, True)):
            at = MIDNIGHT_MS - age * DAY_MS
            path = write_lines(tmp_path / f"{age}.jsonl", [{"name": "view", "id": f"id {age}", "at": at}])
            for options in (["--dry-run"], []):
                done = mauve(data, "import", "--app", app["app_id"], "--format", "events", *options, str(path))
                assert (done.returncode, "count again" in done.stderr) == (0, is_warned), done.stderr
