"""The files for servers and several machines fit the settings, roles, ports and paths that the code knows."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import pytest
import yaml
from click.testing import CliRunner

from mauve.access.sign_in_attempts import client_address
from mauve.cli.main import command
from mauve.cli.serve import serve
from mauve.config import SETTINGS, settings_from
from mauve.core.secret import Secret
from mauve.ingest.webhooks.billers import BILLERS
from mauve.stores.sql.dialects import CONNECTIONS_MAX
from mauve.stores.warehouse.server.server import address_from

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.scaled.yaml").read_text())
SERVICES = COMPOSE["services"]
ROLES = {"ingest": 8081, "api": 8080, "loader": 8080}
SERVERS = {"postgres", "clickhouse-1", "clickhouse-2", "clickhouse-3", "nats-1", "nats-2", "nats-3"}
DOCKERFILE = (DEPLOY.parent / "Dockerfile").read_text()
CADDYFILE = (DEPLOY / "scaled" / "Caddyfile").read_text()
CLICKHOUSE_PROXY = (DEPLOY / "scaled" / "clickhouse-proxy.Caddyfile").read_text()


def role_of(service):
    words = service["command"]
    return words[words.index("--role") + 1]


MACHINES = {name: each for name, each in SERVICES.items() if each["image"] == "mauve-scaled" and "profiles" not in each}


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    """The folder that `deploy/new-secrets` creates."""
    folder = tmp_path_factory.mktemp("deploy") / "secrets"
    subprocess.run([DEPLOY / "new-secrets", folder], check=True, capture_output=True)
    return folder


def test_two_machines_of_each_role_run():
    assert sorted(role_of(each) for each in MACHINES.values()) == sorted([*ROLES] * 2)


def test_every_service_is_bounded_and_those_of_mauve_are_confined():
    for name, service in SERVICES.items():
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"]), name
        assert service["stop_grace_period"].endswith("s"), name
        assert "@" in service["image"] or re.search(r":\d+\.\d+|^mauve-scaled$", service["image"]), (
            f"{name}: pin a version"
        )
        assert service["image"].count("/") <= 1, f"{name}: no registry"
    for name, service in MACHINES.items():
        assert service["read_only"], name
        assert service["user"] == "10001:10001", name
        assert service["cap_drop"] == ["ALL"], name


def test_every_machine_uses_settings_that_the_code_knows_and_starts_with_its_command():
    known = {setting.name for setting in SETTINGS}
    for name, service in {**MACHINES, "commands": SERVICES["commands"]}.items():
        assert {setting.removesuffix("_FILE") for setting in service["environment"]} <= known, name
        done = CliRunner().invoke(command, [*service["command"], "--help"])
        assert done.exit_code == 0, name
    assert {option for each in MACHINES.values() for option in each["command"] if option.startswith("--")} <= {
        option for parameter in serve.params for option in parameter.opts
    }


def test_the_secrets_make_settings_for_every_engine(secrets):
    environment = {}
    for name, value in MACHINES["api-1"]["environment"].items():
        mounted = value.removeprefix("/run/secrets/")
        if mounted != value:
            environment[name] = str(secrets / Path(COMPOSE["secrets"][mounted]["file"]).name)
            assert mounted in MACHINES["api-1"]["secrets"]
    settings = settings_from(environment)
    assert {urlsplit(url).hostname for url in settings.stream_url.reveal().split(",")} <= SERVERS
    assert urlsplit(settings.database_url.reveal()).hostname in SERVERS
    address = address_from(settings.warehouse_url)
    assert (address.host, address.port, address.cluster) == ("clickhouse-proxy", 8124, "mauve")
    assert f"http://:{address.port} {{" in CLICKHOUSE_PROXY
    assert SERVICES[address.host]["configs"] == [
        {"source": "clickhouse-proxy", "target": SERVICES["proxy"]["configs"][0]["target"]}
    ]
    assert {each.name for each in secrets.iterdir()} == {
        Path(each["file"]).name for each in COMPOSE["secrets"].values()
    }
    again = subprocess.run([DEPLOY / "new-secrets", secrets], capture_output=True, check=False)
    assert (again.returncode, b"exists" in again.stderr) == (2, True)


def test_an_installation_that_moves_keeps_its_key(tmp_path):
    key = tmp_path / "master.key"
    for prepare in (lambda: None, key.touch):
        prepare()
        refused = subprocess.run([DEPLOY / "new-secrets", tmp_path / "a", key], capture_output=True, check=False)
        assert (refused.returncode, b"is no key" in refused.stderr) == (2, True)
        assert not (tmp_path / "a").exists()
    key.write_text("one\ntwo\n")
    subprocess.run([DEPLOY / "new-secrets", tmp_path / "a", key], check=True, capture_output=True)
    assert (tmp_path / "a" / "master_key").read_text() == "one\ntwo\n"


def test_every_machine_waits_for_its_servers_and_is_asked_for_its_health_on_its_own_port():
    for name, service in MACHINES.items():
        healthy = {each for each, how in service["depends_on"].items() if how["condition"] == "service_healthy"}
        assert healthy == SERVERS, name
        assert f"127.0.0.1:{ROLES[role_of(service)]}/healthz" in service["healthcheck"]["test"][-1], name
    for name in SERVERS:
        assert SERVICES[name]["healthcheck"]["test"], name


def test_the_servers_keep_their_data_in_volumes_of_their_own():
    volumes = [volume.partition(":")[0] for name in SERVERS for volume in SERVICES[name]["volumes"]]
    own = [volume for volume in volumes if volume != "backups"]
    assert sorted(own) == sorted(SERVERS)
    assert set(volumes) <= COMPOSE["volumes"].keys()


def test_only_the_proxy_is_reachable_from_outside():
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    assert COMPOSE["networks"]["inside"]["internal"]
    outgoing = {name for name, service in SERVICES.items() if "outside" in service["networks"]}
    alerts = {name for name, service in MACHINES.items() if role_of(service) == "api"}
    backups = {name for name in SERVERS if name.startswith("clickhouse")}
    assert outgoing == {"proxy", *alerts, *backups}


def test_each_deployment_has_volumes_of_its_own():
    single = yaml.safe_load((DEPLOY.parent / "compose.yaml").read_text())
    assert COMPOSE["name"] not in {"mauve", single.get("name")}, "a checkout is usually in a folder called mauve"


def route_of(path):
    """Return the machines that the proxy sends a path to."""
    matched = re.search(r"@ingest path (.+)", CADDYFILE).group(1).split()
    is_ingest = any(path == each or (each.endswith("*") and path.startswith(each[:-1])) for each in matched)
    (upstreams,) = re.findall(rf"reverse_proxy ({'ingest' if is_ingest else 'api'}-1[^{{]+)\{{", CADDYFILE)
    return upstreams.split()


def test_the_proxy_sends_each_path_to_machines_that_answer_it():
    ingest = ["/v1/events", "/v1/objects", *(f"/v1/webhooks/{biller}/app_1" for biller in BILLERS)]
    api = ["/", "/v1/apps", "/v1/metrics/mau", "/docs", "/signin", "/setup/x", "/healthz"]
    for role, paths in (("ingest", ingest), ("api", api)):
        machines = [name for name, service in MACHINES.items() if role_of(service) == role]
        for path in paths:
            assert route_of(path) == [f"{name}:{ROLES[role]}" for name in machines], path


def test_the_nats_servers_accept_their_configuration(secrets, tmp_path):
    shutil.copy(DEPLOY / "scaled" / "nats.conf", tmp_path)
    for name in ("nats_authorization.conf", "nats_routes.conf"):
        shutil.copy(secrets / name, tmp_path)
    program = Path(sys.executable).with_name("nats-server")
    done = subprocess.run(
        [program, "-t", "-c", tmp_path / "nats.conf"],
        env={**os.environ, "NATS_NAME": "nats-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "nats.conf").read_text()
    assert "sync_interval: always" in text
    assert "max_payload: 8MB" in text
    routes = (tmp_path / "nats_routes.conf").read_text()
    assert set(re.findall(r"@(nats-\d):6222", routes)) == {name for name in SERVERS if name.startswith("nats")}


def test_commands_can_back_up_everything(secrets):
    """With pg_dump of the server's version, a folder that lasts, and the disk that ClickHouse writes to."""
    version = re.search(r"postgres:(\d+)", SERVICES["postgres"]["image"]).group(1)
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))
    assert f"ARG POSTGRESQL={version}\n" in stages["scaled"]
    assert "COPY deploy/verify-clickhouse" in stages["scaled"]
    assert SERVICES["commands"]["build"] == {"context": "..", "target": "scaled"}
    assert "backups:/backups" in SERVICES["commands"]["volumes"]
    user = ET.parse(secrets / "clickhouse_user.xml").getroot()
    address = address_from(Secret((secrets / "warehouse_url").read_text()))
    assert (address.user, address.password.reveal()) == ("mauve", user.findtext("users/mauve/password"))
    assert ET.parse(secrets / "clickhouse_cluster.xml").getroot().findtext("remote_servers/mauve/secret")


def test_clickhouse_has_three_replicas_of_one_shard_and_a_place_for_backups():
    config = ET.parse(DEPLOY / "scaled" / "clickhouse.xml").getroot()
    shards = config.findall("remote_servers/mauve/shard")
    hosts = [host.text for host in shards[0].findall("replica/host")]
    assert (len(shards), {*hosts}) == (1, {name for name in SERVERS if name.startswith("clickhouse")})
    assert config.findtext("backups/allowed_disk") == "backups"
    for name in hosts:
        assert SERVICES[name]["hostname"] == SERVICES[name]["environment"]["SERVER_NAME"] == name
        assert "CLICKHOUSE_DB" not in SERVICES[name]["environment"], "creating it would need Keeper before it listens"
    numbers = [SERVICES[name]["environment"]["REPLICA"] for name in hosts]
    assert numbers == [each.text for each in config.findall("keeper_server/raft_configuration/server/id")]


def test_postgresql_allows_the_connections_of_every_process_and_a_command():
    words = [each["command"] for each in MACHINES.values()]
    processes = sum(int(each[each.index("--workers") + 1]) if "--workers" in each else 1 for each in words)
    allowed = int(re.search(r"max_connections=(\d+)", " ".join(SERVICES["postgres"]["command"]))[1])
    assert (processes + 1) * (2 * CONNECTIONS_MAX + 2) < allowed, "to each of catalog and ledger, and for the keys"


def test_each_platform_is_given_the_number_of_addresses_that_its_proxies_append():
    railway = re.search(
        r"## Railway.*?MAUVE_PROXIES=(\d+)", (DEPLOY.parent / "docs" / "deploying.md").read_text(), re.DOTALL
    )
    one_machine = re.search(r"#   MAUVE_PROXIES=(\d+)", (DEPLOY.parent / "compose.yaml").read_text())
    forwarded = {  # what reaches Mauve from a visitor at 203.0.113.7 who claims to be another
        "fly": (
            "9.9.9.9, 203.0.113.7, 66.241.124.230",
            tomllib.loads((DEPLOY / "fly.toml").read_text())["env"]["MAUVE_PROXIES"],
        ),
        "railway": ("203.0.113.7, 152.233.33.161", railway[1]),  # It strips what the visitor claims.
        "compose": ("203.0.113.7", one_machine[1]),  # Caddy does, too, and appends nothing of its own.
        "compose, scaled": ("203.0.113.7", COMPOSE["x-mauve"]["environment"]["MAUVE_PROXIES"]),
    }
    for platform, (header, proxies) in forwarded.items():
        assert client_address("10.0.0.5", header, int(proxies)) == "203.0.113.7", platform
