"""The packages of the service, built from this checkout and installed outside it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.packages import ROOT, Packages, build
from support.service import clean_environment

INSTALL_S_MAX = 1200  # A gigabyte is downloaded and unpacked.
EXTRAS = ("clickhouse-connect", "httpx2", "mcp", "nats-py", "psycopg", "psycopg-binary")


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    folder = tmp_path_factory.mktemp("packages")
    build(ROOT, folder)
    (wheel,), (sdist,) = folder.glob("mauve-*.whl"), folder.glob("mauve-*.tar.gz")
    return Packages(wheel, sdist)


def _pip(environment: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def installed(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment that holds the wheel without extras, and nothing of the checkout.

    pip takes no hashes from a constraints file. So the pinned set is installed first, then the wheel alone, and
    `pip check` finds whatever it requires that is missing or of another version.
    """
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    _pip(environment, "install", "--require-hashes", "-r", str(ROOT / "requirements" / "runtime.txt"))
    _pip(environment, "install", "--no-deps", "--no-index", str(packages.wheel))
    _pip(environment, "uninstall", "--yes", *EXTRAS)
    _pip(environment, "check")
    return environment / "bin"


@pytest.fixture
def environment() -> dict[str, str]:
    """The variables of a stranger's shell."""
    ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if ".venv" not in part)
    return {name: value for name, value in clean_environment(PATH=path).items() if name not in ours}
