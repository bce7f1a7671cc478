"""The files that deploy one machine fit the settings, ports and paths that the code and the image know."""

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

from mauve.config import SETTINGS, settings_from

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICE, PROXY = COMPOSE["services"]["mauve"], COMPOSE["services"]["proxy"]
FLY = tomllib.loads((DEPLOY / "fly.toml").read_text())
RAILWAY = json.loads((DEPLOY / "railway.json").read_text())
UNIT = (DEPLOY / "mauve.service").read_text()
DEPLOYING = (ROOT / "docs/deploying.md").read_text()
KNOWN = {setting.name for setting in SETTINGS}
MAUVES = re.compile(r"(MAUVE_\w+)=(\S+)")
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


def default_of(value):
    """Return what Compose takes if the variable is not set."""
    return DEFAULT.sub(r"\1", value)


def unit_environment():
    line = re.search(r"^Environment=(.*)$", UNIT, re.MULTILINE).group(1)
    return {
        name: value
        for name, _, value in (each.partition("=") for each in line.split())
        if name != "PYTHONDONTWRITEBYTECODE"
    }


def image_environment():
    (lines,) = re.findall(r"^ENV (.*?[^\\])$", DOCKERFILE, re.MULTILINE | re.DOTALL)
    return dict(MAUVES.findall(lines))


@pytest.mark.parametrize(
    "environment",
    [
        {name: default_of(value) for name, value in SERVICE["environment"].items()},
        FLY["env"],
        unit_environment(),
        image_environment(),
    ],
    ids=["compose", "fly", "systemd", "image"],
)
def test_every_file_sets_only_settings_that_the_code_knows(environment):
    assert environment
    assert set(environment) <= KNOWN
    settings_from(environment)


def test_every_file_mounts_the_data_where_the_image_keeps_it():
    data = image_environment()["MAUVE_DATA"]
    assert "VOLUME" not in re.findall(r"^[A-Z]+", DOCKERFILE, re.MULTILINE), "Railway refuses it"
    assert re.search(rf"install --directory --owner=10001 .* {data}$", DOCKERFILE, re.MULTILINE)
    assert SERVICE["volumes"] == [f"data:{data}"]
    assert FLY["mounts"]["destination"] == data
    assert RAILWAY["deploy"]["requiredMountPath"] == data
    assert f"StateDirectory={Path(unit_environment()['MAUVE_DATA']).name}\n" in UNIT


def test_what_the_env_file_sets_reaches_the_service_but_need_not_exist():
    assert SERVICE["env_file"] == [{"path": ".env", "required": False}]
    assert "env_file" not in PROXY, "the secrets are none of the proxy's"


def test_the_deployment_page_installs_the_unit_as_the_unit_says():
    commands = re.findall(r"^#   (\S.*?)(?: {2,}#.*)?$", UNIT, re.MULTILINE)
    assert len(commands) > 5
    assert [command for command in commands if command not in DEPLOYING] == []
    assert "[Unit]" not in DEPLOYING, "there is one unit"


def test_the_deployment_page_sets_only_settings_that_the_code_knows():
    environment = dict(re.findall(r"^(MAUVE_\w+)=(\S+)$", DEPLOYING, re.MULTILINE))
    assert set(environment) <= KNOWN
    settings = settings_from(environment)
    assert settings.backup.every_s == 86_400
    assert f"ReadWritePaths={environment['MAUVE_BACKUP_URL']}\n" in DEPLOYING


def test_every_file_asks_for_readiness_and_stops_in_time():
    assert 'CMD ["mauve", "ready"]\n' in DOCKERFILE
    assert [check["path"] for check in FLY["http_service"]["checks"]] == ["/readyz"]
    assert RAILWAY["deploy"]["healthcheckPath"] == "/readyz"
    assert (SERVICE["stop_grace_period"], FLY["kill_timeout"], RAILWAY["deploy"]["drainingSeconds"]) == (
        "30s",
        "30s",
        30,
    )


def test_no_file_runs_two_services_on_the_same_data():
    assert (RAILWAY["deploy"]["numReplicas"], RAILWAY["deploy"]["overlapSeconds"]) == (1, 0)
    assert FLY["http_service"]["min_machines_running"] == 1
    assert "deploy" not in SERVICE


def test_every_file_builds_the_default_image_and_serves_its_port():
    assert (SERVICE["build"], RAILWAY["build"]["dockerfilePath"]) == (".", "Dockerfile")
    assert re.findall(r"^FROM runtime AS (\w+)\s*\Z", DOCKERFILE, re.MULTILINE) == ["service"], (
        "the last stage is the default"
    )
    assert FLY["http_service"]["internal_port"] == settings_from({}).port == 8080
    assert [default_of(port) for port in SERVICE["ports"]] == ["127.0.0.1:8080:8080", "127.0.0.1:8081:8081"]
    assert "EXPOSE 8080 8081\n" in DOCKERFILE


def test_the_containers_are_bounded_and_confined():
    for name, service in COMPOSE["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped", name
        assert re.fullmatch(r"\d+[mg]", default_of(service["mem_limit"])), name
        assert service["pids_limit"] > 0, name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        volumes = {volume.partition(":")[0] for volume in service["volumes"]}
        assert {volume for volume in volumes if not volume.startswith("./")} <= COMPOSE["volumes"].keys(), name
    assert PROXY["profiles"] == ["tls"]
    assert re.fullmatch(r"caddy:\d+\.\d+\.\d+", PROXY["image"])
    assert (ROOT / PROXY["volumes"][0].partition(":")[0]).samefile(DEPLOY / "Caddyfile")


def test_the_image_takes_only_the_files_that_it_needs():
    kept = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    ]
    assert sorted(kept) == sorted(copied)
    assert all((ROOT / name).exists() for name in kept)


def test_the_image_takes_every_file_that_the_documentation_links_to(tmp_path):
    for name in re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(ROOT / name)
    runpy.run_path(str(tmp_path / "docs/site/build.py"))["write_pages"](tmp_path / "pages")
    assert (tmp_path / "pages/index.md").is_file()
