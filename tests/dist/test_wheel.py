"""What a stranger gets: the packages, and a service that runs from the wheel in any directory."""

import base64
import email
import json
import re
import signal
import subprocess
import tarfile
import zipfile
from contextlib import contextmanager

import httpx2 as httpx
import pytest

from support.browser import PASSWORD, Browser, shown
from support.packages import ROOT, build
from support.service import PATIENCE_S, bearer, eventually


def files_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


@pytest.fixture(scope="module")
def metadata(packages):
    (text,) = (content for name, content in files_in(packages.wheel).items() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(text)


def test_the_wheel_holds_the_package_and_nothing_else(packages):
    folder = ROOT / "src"
    source = {str(path.relative_to(folder)) for path in (folder / "mauve").rglob("*") if path.is_file()}
    held = {name for name in files_in(packages.wheel) if ".dist-info/" not in name}
    assert held == {name for name in source if "__pycache__" not in name}
    assert {"mauve/py.typed", "mauve/web/static/mauve.js", "mauve/openapi/templates/page.html"} < held
    assert any(name.startswith("mauve/stores/ledger/migrations/versions/") for name in held)


def test_the_source_distribution_builds_the_same_wheel(packages, tmp_path):
    with tarfile.open(packages.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build(source, tmp_path / "built", "wheel")
    (wheel,) = (tmp_path / "built").iterdir()
    assert files_in(wheel) == files_in(packages.wheel)


def test_the_description_needs_no_file_of_the_repository(metadata):
    description = metadata.get_payload()
    assert "pipx install mauve" in description
    targets = re.findall(r"\]\(([^)]+)\)", description)
    assert [target for target in targets if not target.startswith(("http", "#"))] == []
    assert ".venv" not in description
    assert "make " not in description


def test_every_dependency_has_a_lower_and_an_upper_bound(metadata):
    requirements = metadata.get_all("Requires-Dist")
    assert len(requirements) > 20
    assert [each for each in requirements if not (">=" in each and re.search(r"<\d", each))] == []


def run(installed, environment, folder, *arguments):
    command = [str(installed / "mauve"), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ".venv" not in done.stdout + done.stderr, "a stranger has no checkout"
    return done


@contextmanager
def served(installed, environment, folder):
    """Run the service in a folder, on free ports; yield its process and what it announced."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [str(installed / "mauve"), "serve", "--port", "0", "--ingest-port", "0", "--json"],
            cwd=folder,
            env=environment | {"MAUVE_READ_CACHE_SECONDS": "0"},
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        line = process.stdout.readline()
        assert line, (folder / "log").read_text()
        yield process, json.loads(line)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=PATIENCE_S)
        process.stdout.close()


def test_the_command_and_the_metadata_agree_on_the_version(installed, environment, tmp_path, metadata):
    assert run(installed, environment, tmp_path, "--version").stdout == f"mauve {metadata['Version']}\n"


def test_nothing_is_imported_from_the_checkout(installed, environment, tmp_path):
    program = "import mauve, sys; print(mauve.__file__, *sys.path)"
    found = subprocess.run(
        [str(installed / "python"), "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert str(ROOT) not in found


def test_from_the_set_up_link_to_the_first_number(installed, environment, tmp_path):
    with served(installed, environment, tmp_path) as (process, running), httpx.Client(base_url=running["url"]) as client:
        assert running["data"] == str(tmp_path / "mauve-data"), "in the directory where it was started"
        owner = Browser(client)
        form = {"organization": "Acme", "email": "ann@example.com", "password": PASSWORD}
        assert owner.send(running["setup_link"].removeprefix(running["url"]), form).status_code == 200
        created = owner.send("/apps", {"name": "First", "type": "saas", "ownership": "mine"})
        key = bearer(shown(created, "key"))

        sent = httpx.post(f"{running['ingest_url']}/v1/events", headers=key, json=[{"name": "opened", "user": "ann"}])
        assert (sent.status_code, sent.json()["accepted"]) == (202, 1)
        eventually(lambda: client.get("/v1/metrics/mau", headers=key).json()["data"] == [{"mau": 1}])

        served_files = ["/docs", "/openapi.json", "/mauve.js", *set(re.findall(r'/static/[^"]+', created.text))]
        assert len(served_files) > 4
        statuses = {path: client.get(path).status_code for path in served_files}
        assert {path: status for path, status in statuses.items() if status != 200} == {}

        doctor = run(installed, environment, tmp_path, "doctor")
        assert (doctor.returncode, "BAD" in doctor.stdout) == (0, False), doctor.stdout
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 0
    assert ".venv" not in (tmp_path / "log").read_text()


def test_a_command_in_another_directory_says_where_it_looked(installed, environment, tmp_path):
    refused = run(installed, environment, tmp_path, "app", "list")
    assert refused.returncode == 2
    assert str(tmp_path / "mauve-data") in refused.stderr
    assert "'mauve serve'" in refused.stderr


def test_a_server_without_its_driver_is_refused_with_the_extra_to_install(installed, environment, tmp_path):
    addresses = {
        "postgres": ("MAUVE_DATABASE_URL", "postgresql://u:p@127.0.0.1:1/d"),
        "clickhouse": ("MAUVE_WAREHOUSE_URL", "clickhouse://u:p@127.0.0.1:1/d"),
        "nats": ("MAUVE_STREAM_URL", "nats://u:p@127.0.0.1:1"),
    }
    master_key = {"MAUVE_MASTER_KEY": base64.b64encode(bytes(32)).decode()}
    for extra, (setting, address) in addresses.items():
        given = environment | master_key | {setting: address}
        refused = run(installed, given, tmp_path, "serve", "--port", "0", "--ingest-port", "0", "--data", extra)
        assert refused.returncode != 0
        assert f"mauve[{extra}]" in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr


def test_tools_for_agents_without_their_extra_say_what_to_install(installed, environment, tmp_path):
    with served(installed, environment, tmp_path) as (_, running):
        org = json.loads(run(installed, environment, tmp_path, "org", "create", "Acme", "--json").stdout)["org_id"]
        minting = ("token", "mint", "--org", org, "--scopes", "apps:read", "--json")
        token = json.loads(run(installed, environment, tmp_path, *minting).stdout)["token"]
        refused = httpx.post(f"{running['url']}/mcp", headers=bearer(token), json={})
        assert refused.status_code == 404
        assert "pip install 'mauve[mcp]'" in refused.json()["error"]
        assert httpx.get(f"{running['url']}/mcp/allowance", headers=bearer(token)).status_code == 200
        settings = {"MAUVE_URL": running["url"], "MAUVE_TOKEN": token}
        command = run(installed, environment | settings, tmp_path, "mcp")
    assert (command.returncode, command.stderr.count("\n")) == (2, 1), command.stderr
    assert "pip install 'mauve[mcp]'" in command.stderr
