"""The commands, called as other programs call them: real processes on separate data directories."""

import asyncio
import io
import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mauve.access.vault import new_master_key
from mauve.cli.main import main
from mauve.config import SETTINGS
from mauve.control.apps import create_app
from mauve.control.bodies import NewAppBody
from mauve.control.operator import create_organization
from mauve.openapi.document import document
from mauve.server.doctor import run_checks
from mauve.stores.log.files.writer import SegmentLogWriter
from mauve.wiring.paths import log_path
from support.service import EVERY_SCOPE, MAUVE, PATIENCE_S, clean_environment, mauve, mauve_json


@pytest.fixture
def data(settings):
    return settings.data


@pytest.fixture
def org(data):
    return mauve_json(data, "org", "create", "Acme")["org_id"]


@pytest.fixture
def app(parts, org):
    return create_app(parts, org, NewAppBody("An app"))[0]


def test_creating_an_organization_creates_the_data_directory(tmp_path):
    data = tmp_path / "deep" / "new"
    created = mauve_json(data, "org", "create", "  Acme   Inc ")
    assert set(created) == {"org_id"}
    (listed,) = mauve_json(data, "org", "list")
    assert (listed["org_id"], listed["name"], listed["standing"]) == (created["org_id"], "Acme Inc", "live")
    assert oct(data.stat().st_mode)[-3:] == "700"
    assert oct((data / "master.key").stat().st_mode)[-3:] == "600"


def test_the_operator_changes_the_standing(data, org):
    assert mauve_json(data, "org", "suspend", org)["standing"] == "suspended"
    assert mauve_json(data, "org", "resume", org)["standing"] == "live"
    unpaid = mauve_json(data, "org", "unpaid", org, "--grace", "3")
    assert unpaid["standing"] == "live"
    assert unpaid["grace_ends_at"] is not None
    assert mauve_json(data, "org", "unpaid", org, "--grace", "0")["standing"] == "suspended"
    assert mauve_json(data, "org", "unpaid", org, "--grace", "9")["standing"] == "suspended", "still unpaid"
    resumed = mauve_json(data, "org", "resume", org)
    assert (resumed["standing"], resumed["grace_ends_at"]) == ("live", None)


def test_limits_are_shown_and_changed_one_by_one(data, org):
    names = ("event_cap", "reads_per_minute", "agent_queries", "raw_scans")

    def limits(*arguments):
        view = mauve_json(data, "org", "limits", org, *arguments)
        return [view[name] for name in names]

    assert limits() == [None, 600, 100_000, 10_000]
    assert limits("--event-cap", "5000") == [5000, 600, 100_000, 10_000]
    assert limits("--reads-per-minute", "1", "--agent-queries", "2", "--raw-scans", "0") == [5000, 1, 2, 0]
    assert limits("--event-cap", "none") == [None, 1, 2, 0]


def test_a_token_is_shown_once_listed_without_its_secret_and_revoked(data, org):
    minted = mauve_json(data, "token", "mint", "--org", org, "--scopes", "apps:read, keys:read", "--name", "ci")
    assert set(minted) == {"token_id", "token"}
    (listed,) = mauve_json(data, "token", "list", "--org", org)
    assert (listed["token_id"], listed["name"], listed["revoked"]) == (minted["token_id"], "ci", False)
    assert listed["scopes"] == ["apps:read", "keys:read"]
    assert minted["token"][25:] not in json.dumps(listed)
    assert mauve_json(data, "token", "revoke", minted["token_id"])["revoked"] is True
    assert mauve_json(data, "token", "list", "--org", org)[0]["revoked"] is True


def test_a_new_user_gets_a_link(data, org):
    created = mauve_json(data, "user", "create", "--org", org, "--email", " Ann@Example.com ", "--role", "viewer")
    assert created["email"] == "ann@example.com"
    assert created["link"].startswith("http://127.0.0.1:8080/password/")


def test_a_user_gets_a_new_link_for_a_forgotten_password(data, org):
    created = mauve_json(data, "user", "create", "--org", org, "--email", "ann@example.com", "--role", "viewer")
    reset = mauve_json(data, "user", "reset", "--email", " ANN@example.com")
    assert (reset["user_id"], reset["email"]) == (created["user_id"], "ann@example.com")
    assert reset["link"].startswith("http://127.0.0.1:8080/password/")
    assert reset["link"] != created["link"]


def test_the_users_of_the_only_organization_are_listed(data, org):
    created = mauve_json(data, "user", "create", "--email", "Ann@Example.com", "--role", "owner")
    expected = {"user_id": created["user_id"], "org_id": org, "email": "ann@example.com", "role": "owner"}
    (listed,) = mauve_json(data, "user", "list")
    assert {name: listed[name] for name in expected} == expected
    assert listed["state"] == "invited"
    assert mauve_json(data, "user", "list", "--org", org) == [listed]
    text = mauve(data, "user", "list").stdout
    assert text.splitlines()[0].split() == ["USER", "E-MAIL", "ROLE", "STATE", "CREATED"]
    assert "ann@example.com" in text


def test_a_set_up_link_is_printed_again_until_there_is_an_account(data, org):
    first, second = (mauve_json(data, "user", "link")["link"] for _ in range(2))
    assert first != second
    assert second.startswith("http://127.0.0.1:8080/setup/")
    mauve_json(data, "user", "create", "--email", "ann@example.com", "--role", "owner")
    refused = mauve(data, "user", "link")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "mauve user reset" in refused.stderr


def test_an_app_is_created_with_its_key_and_the_key_is_listed_without_its_secret(data, org):
    created = mauve_json(data, "app", "create", "My app", "--type", "other")
    assert created["sk_key"].startswith("sk_live_")
    assert (created["name"], created["type"]) == ("My app", "other")
    (app,) = mauve_json(data, "app", "list")
    assert (app["app_id"], app["public_id"]) == (created["app_id"], created["public_id"])
    (key,) = mauve_json(data, "key", "list", "--app", app["app_id"])
    assert (key["project"], key["kind"], key["revoked"], key["minted_by"]) == (
        *(app["public_id"], "sk", False),
        "operator",
    )
    shown = json.dumps(key) + mauve(data, "key", "list", "--app", app["app_id"]).stdout
    assert created["sk_key"] not in shown
    assert created["sk_key"][20:36] not in shown
    text = mauve(data, "app", "create", "Another").stdout
    assert [line.split()[0] for line in text.splitlines()] == ["app", "project", "server"]
    assert "sk_live_" in text


NEED_ONE_ORGANIZATION = (
    ("app", "list"),
    ("app", "create", "An app"),
    ("token", "list"),
    ("token", "mint", "--scopes", "apps:read"),
    ("user", "list"),
    ("user", "create", "--email", "a@b.c", "--role", "owner"),
)


def test_the_organization_must_be_named_unless_there_is_exactly_one(parts, data, monkeypatch, capsys):
    def run(arguments):
        monkeypatch.setattr("sys.argv", ["mauve", *arguments, "--data", str(data)])
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code, capsys.readouterr().err

    for count, sentence in ((0, "mauve org create NAME"), (1, ""), (2, "mauve org list")):
        for arguments in NEED_ONE_ORGANIZATION:
            code, error = run(arguments)
            assert (code, error.count("\n")) == ((2, 1) if sentence else (0, 0)), (count, arguments, error)
            assert sentence in error, (count, arguments)
        create_organization(parts, f"Organization {count}")


def test_a_key_is_minted_for_an_app(data, app):
    minted = mauve_json(data, "key", "mint", "--app", app.app_id, "--kind", "pk")
    assert set(minted) == {"key_id", "key"}
    assert minted["key"].startswith("pk_live_")


def test_a_key_is_listed_with_its_name_and_last_use_and_can_be_revoked(data, app, parts, clock):
    of_app = ("--app", app.app_id)
    minted = mauve_json(data, "key", "mint", *of_app, "--kind", "sk", "--name", "Web server")
    parts.catalog.keys.note_uses({minted["key_id"]: clock.now_ms()})
    keys = {each["key_id"]: each for each in mauve_json(data, "key", "list", *of_app)}
    named = keys.pop(minted["key_id"])
    (first,) = keys.values()
    assert (first["name"], first["last_used_at"]) == (None, None)
    assert (named["name"], named["last_used_at"]) == ("Web server", clock.now_ms())
    text = mauve(data, "key", "list", *of_app).stdout
    assert {"LAST USED", "NAME", "never", "Web server"} == {
        word for word in ("LAST USED", "NAME", "never", "Web server") if word in text
    }
    assert mauve_json(data, "key", "revoke", *of_app, minted["key_id"]) == {"key_id": minted["key_id"], "revoked": True}
    revoked = [each["key_id"] for each in mauve_json(data, "key", "list", *of_app) if each["revoked"]]
    assert revoked == [minted["key_id"]]
    unknown = mauve(data, "key", "revoke", *of_app, "key_missing")
    assert (unknown.returncode, "mauve key list" in unknown.stderr) == (2, True)
    assert mauve(data, "key", "mint", *of_app, "--kind", "sk", "--name", "x" * 81).returncode == 2


def test_test_keys_can_be_minted_after_the_first_test_secret(data, app, org):
    arguments = ("key", "mint", "--app", app.app_id, "--kind", "sk", "--test")
    refused = mauve(data, *arguments)
    assert refused.returncode == 2
    assert "webhooks secret --test" in refused.stderr

    secret = ("webhooks", "secret", "--app", app.app_id, "--provider", "biller_b", "--test")
    saved = mauve_json(data, *secret, stdin="whsec_for_tests\n")
    (listed,) = mauve_json(data, "app", "list", "--org", org)
    assert listed["test_public_id"] == saved["project"] != listed["public_id"]
    assert listed["has_biller_b_webhook"] is False
    assert mauve_json(data, *arguments)["key"].startswith("sk_test_")


USAGE_ERRORS = {
    "no user to reset": ("user", "reset", "--email", "missing@example.com"),
    "no command": (),
    "unknown command": ("brew",),
    "unknown subcommand": ("org", "destroy"),
    "missing argument": ("org", "suspend"),
    "unknown option": ("org", "list", "--colour", "mauve"),
    "extra argument": ("org", "list", "extra"),
    "unknown organization": ("org", "suspend", "org_missing"),
    "unknown organization for a token": ("token", "mint", "--org", "org_missing", "--scopes", "apps:read"),
    "unknown organization for a list": ("token", "list", "--org", "org_missing"),
    "unknown token": ("token", "revoke", "tok_missing"),
    "unknown app": ("key", "mint", "--app", "app_missing", "--kind", "sk"),
    "unknown kind": ("key", "mint", "--app", "app_missing", "--kind", "ctl"),
    "publishable test key": ("key", "mint", "--app", "app_missing", "--kind", "pk", "--test"),
    "empty name": ("org", "create", "  "),
    "name with control characters": ("org", "create", "a\x1b[31m"),
    "name too long": ("org", "create", "x" * 81),
    "grace not a number": ("org", "unpaid", "ORG", "--grace", "soon"),
    "grace negative": ("org", "unpaid", "ORG", "--grace", "-1"),
    "no grace": ("org", "unpaid", "ORG"),
    "cap not a number": ("org", "limits", "ORG", "--event-cap", "many"),
    "cap too large": ("org", "limits", "ORG", "--event-cap", str(2**63)),
    "limit negative": ("org", "limits", "ORG", "--raw-scans", "-1"),
    "unknown scope": ("token", "mint", "--org", "ORG", "--scopes", "apps:read,apps:delete"),
    "no scope": ("token", "mint", "--org", "ORG", "--scopes", " , "),
    "unknown role": ("user", "create", "--org", "ORG", "--email", "a@b.c", "--role", "king"),
    "not an e-mail": ("user", "create", "--org", "ORG", "--email", "not-an-address", "--role", "owner"),
    "no subcommand": ("org",),
    "not UTF-8": ("org", "suspend", "\udcff"),
    "cap of many digits": ("org", "limits", "ORG", "--event-cap", "9" * 5000),
    "empty secret": ("webhooks", "secret", "--app", "APP", "--provider", "biller_a"),
    "port out of range": ("serve", "--port", "70000"),
    "no workers": ("serve", "--workers", "0"),
    "a separate role on embedded engines": ("serve", "--role", "ingest"),
    "unknown serve role": ("serve", "--role", "everything"),
}


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_usage_error_exits_2_with_one_sentence(parts, data, monkeypatch, capsys, options):
    """In this process, for speed; the other tests start real ones."""
    org = create_organization(parts, "Acme").org_id
    app = create_app(parts, org, NewAppBody("An app"))[0].app_id
    for case, arguments in USAGE_ERRORS.items():
        named = [{"ORG": org, "APP": app}.get(word, word) for word in arguments]
        monkeypatch.setattr("sys.argv", ["mauve", *named, "--data", str(data), *options])
        monkeypatch.setattr("sys.stdin", io.StringIO(" \n"))
        with pytest.raises(SystemExit) as exited:
            main()
        printed = capsys.readouterr()
        assert exited.value.code == 2, case
        assert printed.out == "", case
        assert printed.err.startswith("mauve: "), case
        assert printed.err.count("\n") == 1, case
        assert printed.err.endswith("\n"), case
        assert "\x1b" not in printed.err, case


@pytest.mark.parametrize(
    "arguments", [("org", "list"), ("token", "list", "--org", "org_x"), ("org", "suspend", "org_x")]
)
def test_reading_does_not_create_a_missing_data_directory(tmp_path, arguments):
    done = mauve(tmp_path / "typo", *arguments)
    assert done.returncode == 2
    assert "check --data" in done.stderr
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("name", ["q?mode=x", "p%41", "a b", "é"])
def test_any_name_can_be_a_data_directory(tmp_path, name):
    data = tmp_path / name
    org = mauve_json(data, "org", "create", "Acme")["org_id"]
    assert [listed["org_id"] for listed in mauve_json(data, "org", "list")] == [org]
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {oct(path.stat().st_mode)[-3:] for path in data.iterdir()} == {"600"}


def test_an_empty_path_does_not_mean_the_current_directory(tmp_path):
    done = subprocess.run(
        [MAUVE, "org", "create", "Acme", "--data", ""],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=clean_environment(),
        check=False,
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])


def test_a_refused_name_creates_no_data_directory(tmp_path):
    assert mauve(tmp_path / "new", "org", "create", "").returncode == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("token", "revoke", "ctl_live_canary"),
        ("webhooks", "secret", "--app", "a", "--provider", "biller_a", "whsec_canary"),
    ],
)
def test_a_credential_given_in_the_wrong_place_is_not_echoed(data, arguments):
    done = mauve(data, *arguments)
    assert done.returncode == 2
    assert "canary" not in done.stderr


def test_a_secret_that_is_not_text_is_refused(data, app):
    arguments = [MAUVE, "webhooks", "secret", "--app", app.app_id, "--provider", "biller_a", "--data", data]
    done = subprocess.run(arguments, input=b"\xff\xfe", capture_output=True, env=clean_environment(), check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_an_invalid_setting_is_a_usage_error(data):
    done = mauve(data, "org", "list", MAUVE_PORT="http")
    assert (done.returncode, done.stdout) == (2, "")
    assert "MAUVE_PORT" in done.stderr


def test_the_data_directory_can_come_from_the_environment(data, org):
    environment = clean_environment(MAUVE_DATA=str(data))
    done = subprocess.run([MAUVE, "org", "list", "--json"], capture_output=True, text=True, env=environment, check=True)
    assert [listed["org_id"] for listed in json.loads(done.stdout)] == [org]


def test_every_command_refuses_a_wrong_master_key(data, org):
    done = mauve(data, "org", "list", MAUVE_MASTER_KEY=new_master_key())
    assert done.returncode == 2
    assert "master key does not match" in done.stderr
    assert "set MAUVE_MASTER_KEY to the right one" in done.stderr


def test_a_master_key_that_is_still_needed_cannot_be_dropped(data, app):
    old, new = (data / "master.key").read_text().strip(), new_master_key()
    mauve_json(data, "webhooks", "secret", "--app", app.app_id, "--provider", "biller_a", stdin="whsec_x")
    rotated = mauve(data, "org", "list", MAUVE_MASTER_KEY=f"{new},{old}")
    assert rotated.returncode == 0
    dropped = mauve(data, "org", "list", MAUVE_MASTER_KEY=new)
    assert dropped.returncode == 2
    assert "add it again" in dropped.stderr
    assert mauve(data, "org", "list", MAUVE_MASTER_KEY=f"{new},{old}").returncode == 0


def test_a_lost_master_key_is_not_replaced_by_a_new_one(data, org):
    (data / "master.key").unlink()
    done = mauve(data, "org", "list")
    assert done.returncode == 2
    assert "backup" in done.stderr
    assert not (data / "master.key").exists()


def test_a_damaged_catalog_is_a_failure_with_one_sentence(data):
    (data / "catalog.db").write_bytes(b"not a database" * 1000)
    for suffix in ("-wal", "-shm"):
        (data / f"catalog.db{suffix}").unlink(missing_ok=True)
    done = mauve(data, "org", "list")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "mauve doctor" in done.stderr


class TestDoctor:
    def test_a_healthy_installation(self, data, org):
        report = mauve_json(data, "doctor")
        assert report["ok"] is True
        names = {check["name"] for check in report["checks"]}
        assert names == {
            "versions",
            "data directory",
            "master key",
            "catalog",
            "queue",
            "warehouse",
            "raw events",
            "backups",
            "clock",
            "disk",
            "server",
        }

    def test_each_problem_is_found_with_advice(self, data, org):
        data.chmod(0o755)
        (data / "master.key").chmod(0o644)
        with sqlite3.connect(data / "catalog.db") as connection:
            connection.execute("UPDATE organizations SET created_at = created_at + 99999999999")
        connection.close()
        done = mauve(data, "doctor", "--json")
        assert done.returncode == 1
        bad = {check["name"]: check["advice"] for check in json.loads(done.stdout)["checks"] if not check["ok"]}
        assert set(bad) == {"data directory", "master key", "clock"}
        assert "chmod 700" in bad["data directory"]
        assert all(bad.values())

    def test_the_lock_of_a_killed_server_is_explained(self, data, org):
        def server():
            return next(check["detail"] for check in mauve_json(data, "doctor")["checks"] if check["name"] == "server")

        assert server() == "no service runs on this directory"
        (data / "serve.lock").write_text('{"pid":1,"url":"http://here","public_url":"http://here"}')
        assert "process 1 was killed" in server()

    def test_the_queue_is_full_only_when_one_worker_has_used_its_budget(self, settings):
        async def append(stream):
            log = SegmentLogWriter(
                log_path(settings.data), stream, segment_bytes=settings.segment_bytes, budget_bytes=2**30
            )
            await log.append([b"record"])
            await log.close()

        for stream in range(3):
            asyncio.run(append(stream))
        segment = settings.segment_bytes  # Each stream has one, and needs room for the next.
        for budget, is_full in ((2 * segment, False), (2 * segment - 1, True)):
            findings = {each.name: each for each in run_checks(replace(settings, backlog_bytes_max=budget))}
            assert ("events are refused" in findings["queue"].advice) is is_full

    def test_a_wrong_master_key_is_found(self, data, org):
        done = mauve(data, "doctor", "--json", MAUVE_MASTER_KEY=new_master_key())
        bad = [check["name"] for check in json.loads(done.stdout)["checks"] if not check["ok"]]
        assert (done.returncode, bad) == (1, ["master key"])

    def test_missing_data_is_reported(self, tmp_path):
        done = mauve(tmp_path / "nothing", "doctor", "--json")
        assert done.returncode == 1
        assert "mauve serve" in done.stdout

    def test_a_damaged_catalog_does_not_stop_the_other_checks(self, data):
        (data / "catalog.db").write_bytes(b"not a database" * 1000)
        for suffix in ("-wal", "-shm"):
            (data / f"catalog.db{suffix}").unlink(missing_ok=True)
        done = mauve(data, "doctor", "--json")
        checks = json.loads(done.stdout)["checks"]
        assert done.returncode == 1
        assert len(checks) == 11
        assert "catalog" in {check["name"] for check in checks if not check["ok"]}


VERIFY = Path(__file__).parents[2] / "deploy" / "verify-clickhouse"


class TestVerifyClickhouse:
    def verify(self, *arguments, **settings):
        command = [sys.executable, VERIFY, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=clean_environment() | settings, timeout=PATIENCE_S, check=False
        )

    def test_its_help_names_the_privileges_and_checks_nothing(self):
        done = self.verify("--help", MAUVE_WAREHOUSE_URL="clickhouse://u:canary@127.0.0.1:1/db")
        assert (done.returncode, done.stderr) == (0, "")
        assert "CREATE DATABASE" in done.stdout
        assert "FAILED" not in done.stdout

    def test_the_address_may_be_in_a_file_and_nothing_is_cleaned_up_without_a_server(self, tmp_path):
        (tmp_path / "url").write_text("clickhouse://u:canary@127.0.0.1:1/db\n")
        done = self.verify(MAUVE_WAREHOUSE_URL_FILE=str(tmp_path / "url"))
        (line,) = done.stdout.splitlines()
        assert (done.returncode, done.stderr) == (1, "")
        assert "127.0.0.1:1 does not answer (no connection can be made): check that it runs" in line
        assert "canary" not in line

    @pytest.mark.parametrize("url", ["clickhouse:/u:canary@host/db", "clickhouse://u:canary@/db", "canary"])
    def test_a_misspelled_address_is_explained(self, url):
        done = self.verify(MAUVE_WAREHOUSE_URL=url)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "MAUVE_WAREHOUSE_URL must be written as clickhouse://USER:PASSWORD@HOST:PORT/DATABASE\n"


def test_help_names_every_setting(data):
    done = mauve(data, "serve", "--help")
    assert done.returncode == 0
    assert all(setting.name in done.stdout for setting in SETTINGS)


def test_the_scopes_in_the_readme_exist(data, org):
    minted = mauve_json(data, "token", "mint", "--org", org, "--scopes", EVERY_SCOPE)
    assert minted["token"].startswith("ctl_live_")


def test_the_reference_is_printed_without_any_data(tmp_path):
    printed = mauve_json(tmp_path / "none", "openapi")
    assert printed == document()
    assert json.loads(mauve(tmp_path / "none", "openapi").stdout) == printed
    assert not (tmp_path / "none").exists()


CHATTY = """
import click, structlog
from mauve.cli.main import command, main
from mauve.cli.options import data_options

@command.command()
@data_options
def chatter(data, as_json):
    structlog.get_logger().warning("publication_delayed", key="sk_live_abcdefgh")
    click.echo("{}")

main()
"""


def test_only_the_result_is_on_standard_output_whatever_is_logged():
    done = subprocess.run([sys.executable, "-c", CHATTY, "chatter"], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n"
    assert "publication_delayed" in done.stderr
    assert "abcdefgh" not in done.stderr


@pytest.mark.embedded
def test_the_doctor_prints_no_secret_of_a_server_that_it_cannot_reach(tmp_path):
    """Its output is asked for in reports of problems."""
    master_key = new_master_key()
    found = mauve(
        tmp_path / "data",
        "doctor",
        MAUVE_MASTER_KEY=master_key,
        MAUVE_DATABASE_URL="postgresql://mauve:canary@127.0.0.1:1/mauve",
        MAUVE_WAREHOUSE_URL="clickhouse://mauve:canary@127.0.0.1:1/mauve",
        MAUVE_STREAM_URL="nats://mauve:canary@127.0.0.1:1",
    )
    assert found.stdout.count("cannot be used; not checked") == 3
    assert "canary" not in found.stdout + found.stderr
    assert master_key not in found.stdout + found.stderr
