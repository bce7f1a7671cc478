"""What an export holds after an import, an erasure and a restart, on every engine."""

import json
import os
import signal

import httpx2 as httpx
import pytest

from support.service import PATIENCE_S, SERVERS, bearer, eventually, mauve, mauve_json, running, token_for

DAY_MS = 86_400_000
LONG_AGO = 1_500_000_000_000
ANN = "ann ☃"
# What the installation adds to a row.
OWN = ("source", "seq", "received_at", "claimed_at", "counted")


@pytest.fixture
def data(settings):
    return settings.data


def new_app(service):
    headers = bearer(token_for(service.data))
    app = httpx.post(f"{service.url}/v1/apps", timeout=PATIENCE_S, json={"name": "An app"}, headers=headers).json()
    eventually(lambda: send(service, app, [{"name": ""}]) == 422)
    return app


def send(service, app, body, path="/v1/events"):
    reply = httpx.post(f"{service.ingest_url}{path}", timeout=PATIENCE_S, json=body, headers=bearer(app["sk_key"]))
    return reply.status_code


def exported(data, app, *arguments):
    """Return the lines of an export that must succeed."""
    done = mauve(data, "export", "--app", app["app_id"], *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def import_lines(data, app, path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = mauve(data, "import", "--app", app["app_id"], "--format", "events", str(path))
    assert done.returncode == 0, done.stderr


def history(user, mark):
    payment = {"name": "payment", "user": user, "props": {"amount": 500, "currency": "eur"}}
    subscription = {"status": "active", "mrr": 900, "currency": "eur", "customer": user}
    return [
        {"name": "old", "user": user, "id": f"event-{mark}", "at": LONG_AGO, "props": {"n": 1}},
        {"kind": "payment", "id": f"payment-{mark}", "at": LONG_AGO + DAY_MS, **payment},
        {"kind": "subscription", "id": f"subscription-{mark}", "at": LONG_AGO, **subscription},
    ]


def test_imported_rows_name_their_source_and_erased_people_are_gone(data, tmp_path):
    with running(data, "--workers", "1") as service:
        app = new_app(service)
        import_lines(data, app, tmp_path / "ann.jsonl", history(ANN, 1))
        import_lines(data, app, tmp_path / "bob.jsonl", history("bob", 2))
        assert send(service, app, [{"name": "new", "user": ANN}]) == 202
        subscription = {"type": "subscription", "id": "s", "status": "active", "mrr": 9, "currency": "eur", "user": ANN}
        assert send(service, app, subscription, "/v1/objects") == 202
        lines = exported(data, app)
        imported = {line["id"]: line["source"] for line in lines if "source" in line}
        kinds = ("event", "payment", "subscription")
        assert imported == {f"{kind}-{number}": f"import-{number}" for kind in kinds for number in (1, 2)}
        assert [line["kind"] for line in lines if "source" not in line] == ["event", "subscription"], "they were sent"
        assert lines[0]["at"] == LONG_AGO
        of_ann = exported(data, app, "--user", ANN)
        assert [line["kind"] for line in of_ann] == ["event", "event", "payment", "subscription", "subscription"]
        assert [line["source"] for line in of_ann if "source" in line] == ["import-1"] * 3
        folder = tmp_path / "parquet"
        command = ("--format", "parquet", "--output", str(folder), "--user", "bob")
        counts = mauve_json(data, "export", "--app", app["app_id"], *command)
        assert counts == {"events": 1, "payments": 1, "subscription_versions": 1}

        mauve_json(data, "erase-user", "--app", app["app_id"], ANN, "--yes")
        assert exported(data, app, "--user", ANN) == []
        left = exported(data, app)
        assert len(left) == len(lines), "the rows stay, without the person"
        assert ANN not in json.dumps(left, ensure_ascii=False)
        assert len(exported(data, app, "--user", "bob")) == 3


def test_an_export_that_is_imported_elsewhere_is_the_same_export(data, tmp_path):
    with running(data, "--workers", "1") as service:
        app, other = new_app(service), new_app(service)
        subscription = {"type": "subscription", "id": "s", "status": "active", "mrr": 9, "currency": "eur", "user": ANN}
        assert send(service, app, [{"name": "view", "user": ANN, "props": {"page": "/"}}]) == 202
        assert send(service, app, subscription, "/v1/objects") == 202
        paid = {"amount": 500, "currency": "eur", "note": "☃"}
        assert send(service, app, [{"name": "payment", "user": ANN, "id": "p", "props": paid}]) == 202
        import_lines(data, app, tmp_path / "history.jsonl", history(ANN, 1))
        lines = exported(data, app)
        import_lines(data, other, tmp_path / "lines.jsonl", lines)
        again = exported(data, other)
        assert own_left_out(again) == own_left_out(lines), "with the items as they were received"
        assert {line["source"] for line in again} == {"import-2"}
        assert len(exported(data, other, "--user", ANN)) == len(lines) == 6


def own_left_out(lines):
    return [{name: value for name, value in line.items() if name not in OWN} for line in lines]


def test_a_stopped_service_exports_the_same_and_what_still_waits(data):
    with running(data, "--workers", "1") as service:
        app = new_app(service)
        events = [{"name": "view", "user": ANN, "id": "one"}, {"name": "view", "id": "one"}, {"name": "view"}]
        assert send(service, app, events) == 202
        lines = exported(data, app)
    assert [line["counted"] for line in lines] == [True, False, True]
    assert exported(data, app) == lines
    with running(data, "--workers", "1", environment={"MAUVE_INGEST_FLUSH_SECONDS": "30"}) as service:
        assert send(service, app, [{"name": "waiting", "user": "eve"}]) == 202
        if not SERVERS[data]:
            for pid in (service.process.pid, *service.child_pids().values()):
                os.kill(pid, signal.SIGKILL)
            service.process.wait()
    waiting = [line for line in exported(data, app) if line not in lines]
    assert [(line["name"], line["user"]) for line in waiting] == [("waiting", "eve")]
