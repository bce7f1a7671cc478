"""Build the image and run it, without a container engine: buildah builds it, namespaces of this host confine it.

The base is a Debian that mmdebstrap puts together, in place of `python:3.11-slim`; packages come from wheels that this
host's pip fetched. So a build needs no registry of images and no network of its own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.service import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]
PROGRAMS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "nsenter": "util-linux", "unshare": "util-linux"}
SUITE, PYTHON = "bookworm", "3.11"
BASE, IMAGE = "localhost/mauve-test-base", "localhost/mauve-test"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER = ("setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", "--no-new-privs", "--bounding-set=-all")
# As `docker run --read-only --tmpfs /tmp --volume DATA:/data --cap-drop ALL --security-opt no-new-privileges`.
CONFINE = """
set -eu
root=$1 data=$2 folder=$3; shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t tmpfs -o size=64m,mode=0755 tmpfs "$root/dev"
for device in null zero random urandom; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t tmpfs -o size=64m,mode=1777 tmpfs "$root/tmp"
mount --bind "$data" "$root/data"
exec chroot "$root" env --chdir="$folder" "$@"
"""


def reason_to_skip() -> str | None:
    """Return why this host cannot build and run an image; None if it can."""
    if os.geteuid() != 0:
        return "building and running an image without a container engine needs root"
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if missing:
        return f"building an image needs more programs (Debian: apt-get install {' '.join(missing)})"
    probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return None if probe.returncode == 0 else f"this host refuses namespaces: {probe.stderr.decode().strip()}"


@dataclass(frozen=True)
class Image:
    """A built image: its configuration, and its files, mounted here."""

    settings: Mapping[str, Any]
    root: Path
    bytes: int


class Builder:
    """Buildah with a store of its own, so that nothing is left on the host."""

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._report = report
        # Overlay cannot lie on overlay, as in a container; copies work everywhere, slower.
        kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout
        driver = "vfs" if "overlay" in kind or "tmpfs" in kind else "overlay"
        self._store = ("--root", folder / "store", "--runroot", folder / "run", "--storage-driver", driver)

    def build(self) -> Image:
        with ThreadPoolExecutor() as both:
            base = both.submit(self._step, "base", self._make_base)
            self._step("wheels", self._fetch_wheels)
            base.result()
        self._step("image", self._build_image)
        (found,) = json.loads(self._run("images", "--json", IMAGE))
        settings = json.loads(self._run("inspect", "--type", "image", IMAGE))["Docker"]["config"]
        container = self._run("from", "--pull-never", IMAGE)
        root = Path(self._run("mount", container))
        occupied = subprocess.run(["du", "-s", "-B1", root], capture_output=True, text=True, check=True).stdout
        self._report(f"image: {int(occupied.split()[0]) / 1e6:.0f} MB with its base, id {found['id'][:12]}")
        return Image(settings, root, int(occupied.split()[0]))

    def remove(self) -> None:
        self._run("rm", "--all")
        self._run("rmi", "--all", "--force")

    def _make_base(self) -> None:
        packages = "--include=python3,python3-venv"
        # It need not survive a power cut, nor be read by people.
        quicker = [f"--dpkgopt={option}" for option in ("force-unsafe-io", "path-exclude=/usr/share/doc/*")]
        archive = self._folder / "base.tar"
        _must("mmdebstrap", "--quiet", "--variant=minbase", packages, *quicker, SUITE, archive)
        container = self._run("from", "scratch")
        self._run("add", "--quiet", container, archive, "/")
        self._run("config", "--env", f"PATH={PATH}", container)
        self._run("commit", "--quiet", "--rm", container, BASE)
        archive.unlink()

    def _fetch_wheels(self) -> None:
        wanted = [part for name in ("build", "docs", "runtime") for part in ("-r", ROOT / f"requirements/{name}.txt")]
        only = ("--require-hashes", "--only-binary=:all:", "--python-version", PYTHON)
        folder = self._folder / "wheels"
        _must(sys.executable, "-m", "pip", "download", "--quiet", *only, "--dest", folder, *wanted)
        (self._folder / "pip.conf").write_text("[global]\nno_index = true\nfind_links = /wheels\n")

    def _build_image(self) -> None:
        mounted = ("wheels:/wheels", "pip.conf:/etc/pip.conf")
        volumes = [part for each in mounted for part in ("--volume", f"{self._folder}/{each}:ro")]
        how = ("--isolation", "chroot", "--format", "docker", "--build-arg", f"BASE={BASE}")
        self._run("bud", *how, *volumes, "--tag", IMAGE, ROOT)

    def _run(self, *arguments: object) -> str:
        return _must("buildah", *self._store, *arguments)

    def _step(self, name: str, work: Callable[[], None]) -> None:
        begun_at = time.monotonic()
        work()
        self._report(f"{name}: made in {time.monotonic() - begun_at:.0f} s")


class Container:
    """A running image: its process 1, as this host sees it."""

    def __init__(self, process: subprocess.Popen[bytes], image: Image, url: str) -> None:
        self._process = process
        self._image = image
        self.url = url
        self.pid = _only_child(process.pid)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as the image's user, and wait for it."""
        inside = ("nsenter", "--target", str(self.pid), "--mount", "--pid", "--root", "--wd")
        environment = ("env", "-i", *self._image.settings["Env"])
        words = [*inside, *environment, *USER, *command]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def stop(self) -> int:
        """Send SIGTERM to process 1, as `docker stop` does, and return its exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return self._process.wait(timeout=PATIENCE_S)


@contextmanager
def running(image: Image, data: Path, **environment: str) -> Iterator[Container]:
    """Run the image's own command as its own user, with its files read-only, until it is ready."""
    settings = image.settings
    command = [*settings["Entrypoint"], *settings["Cmd"], "--json"]
    variables = [*settings["Env"], *(f"{name}={value}" for name, value in environment.items())]
    confined = ["sh", "-c", CONFINE, "sh", image.root, data, settings["WorkingDir"], "-i", *variables, *USER, *command]
    with (data.parent / "log").open("ab") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", *confined], stdout=subprocess.PIPE, stderr=log
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (data.parent / "log").read_text()
        yield Container(process, image, json.loads(line)["url"])
    finally:
        process.kill()  # Its namespace ends with it.
        process.wait()
        process.stdout.close()


def _only_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return int(eventually(lambda: children.read_text().split())[0])


def _must(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout.strip()
