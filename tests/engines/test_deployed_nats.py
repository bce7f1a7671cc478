"""The configuration of NATS in `deploy/` makes a cluster, which a server without its password cannot join."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.ports import free_ports
from support.service import PATIENCE_S, eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
PROGRAM = Path(sys.executable).with_name("nats-server")
NAMES = ("nats-1", "nats-2", "nats-3")


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deploy") / "secrets"
    subprocess.run([DEPLOY / "new-secrets", folder], check=True, capture_output=True)
    return folder


@contextmanager
def server(folder, name, ports, secrets, change=lambda text: text):
    """Run a server with the shipped configuration, on ports of its own; `ports` are those of all, by name."""
    folder.mkdir()
    client, monitor, route = ports[name]
    text = (DEPLOY / "scaled" / "nats.conf").read_text().replace("store_dir: /data", f"store_dir: {folder}/data")
    for shipped, used in {4222: client, 8222: monitor, 6222: route}.items():
        text = text.replace(f"0.0.0.0:{shipped}", f"127.0.0.1:{used}")
    (folder / "nats.conf").write_text(text)
    (folder / "nats_authorization.conf").write_text((secrets / "nats_authorization.conf").read_text())
    routes = (secrets / "nats_routes.conf").read_text()
    for other, (_, _, port) in ports.items():
        routes = routes.replace(f"{other}:6222", f"127.0.0.1:{port}")
    (folder / "nats_routes.conf").write_text(change(routes))
    command = [PROGRAM, "-c", folder / "nats.conf", "--log", folder / "log"]
    process = subprocess.Popen(command, env={**os.environ, "NATS_NAME": name})
    try:
        yield
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def ask(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return json.loads(reply.read())
    except OSError:
        return {}


def peers(port):
    return {route.get("remote_name") for route in ask(port, "/routez").get("routes") or ()}


def test_three_servers_find_each_other_and_a_stranger_is_refused(tmp_path, secrets):
    free = free_ports(12)
    ports = {name: tuple(free[place * 3 : place * 3 + 3]) for place, name in enumerate(NAMES)}
    stranger = {**ports, "stranger": tuple(free[9:])}
    with ExitStack() as started:
        for name in NAMES:
            started.enter_context(server(tmp_path / name, name, ports, secrets))
        for name, (_, monitor, _) in ports.items():
            eventually(lambda monitor=monitor, others={*NAMES} - {name}: peers(monitor) == others)
            eventually(lambda monitor=monitor: ask(monitor, "/jsz").get("meta_cluster", {}).get("leader"))

        def mistaken(routes):
            return re.sub(r"route:\w+@", "route:mistaken@", routes)

        with server(tmp_path / "stranger", "stranger", stranger, secrets, mistaken):
            log = tmp_path / "stranger" / "log"
            eventually(lambda: log.exists() and "Authorization Violation" in log.read_text())
            assert peers(stranger["stranger"][1]) == set()
            assert peers(ports["nats-1"][1]) == {"nats-2", "nats-3"}
