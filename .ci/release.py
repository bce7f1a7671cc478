"""A release as a dry run: check what it needs, build every package, install and try each. Nothing is published.

`make release` runs this; docs/releasing.md is the whole checklist.
"""

import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
STEP_S_MAX: Final = 1800  # The longest step downloads and unpacks a gigabyte.
PYTHON_CLIENT: Final = "clients/python/src/mauve_metrics/_version.py"
TYPESCRIPT_CLIENT: Final = "clients/typescript/package.json"
TYPESCRIPT_LOCK: Final = "clients/typescript/package-lock.json"
RELEASES: Final = "tests/support/releases.py"
SITE_PAGE: Final = "src/mauve/openapi/site/index.html"


def version_in(root: Path) -> str:
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def faults(root: Path) -> Iterator[str]:
    """Yield what keeps the files of a source folder from being released, one sentence each."""
    version = version_in(root)
    for name, found in _stated_versions(root).items():
        if found != version:
            yield f"{name} states version {found}, pyproject.toml {version}: make them equal"
    names = re.findall(r'Release\("([^"]+)"', (root / RELEASES).read_text())
    if names[-1:] != [version]:
        yield f"{RELEASES} has no line for {version} at its end: add it"
    heading = re.search(r"^## (.*)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None or not re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", heading[1]):
        yield f"CHANGELOG.md does not begin with the release: write '## {version} - YEAR-MONTH-DAY' over its changes"


def _stated_versions(root: Path) -> dict[str, str]:
    stated = re.search(r'VERSION = "([^"]+)"', (root / PYTHON_CLIENT).read_text())
    return {
        PYTHON_CLIENT: stated[1] if stated else "none",
        TYPESCRIPT_CLIENT: json.loads((root / TYPESCRIPT_CLIENT).read_text())["version"],
        TYPESCRIPT_LOCK: json.loads((root / TYPESCRIPT_LOCK).read_text())["version"],
    }


def changed_files(root: Path) -> list[str]:
    """Return the files that are not as they are committed: they would get into the packages."""
    return run(root, "git", "status", "--porcelain").splitlines()


def build_all(root: Path, dist: Path) -> None:
    run(root, "make", "docs")  # Git ignores the site: without this, an old one or none would get into the packages.
    for source in (root, root / "clients" / "python"):
        run(source, sys.executable, "-m", "hatchling", "build", "--directory", str(dist))
    run(root / "clients" / "typescript", "npm", "ci", "--no-progress")
    run(root / "clients" / "typescript", "npm", "pack", "--pack-destination", str(dist))


def packages(version: str) -> list[str]:
    return [
        f"mauve-{version}-py3-none-any.whl",
        f"mauve-{version}.tar.gz",
        f"mauve_metrics-{version}-py3-none-any.whl",
        f"mauve_metrics-{version}.tar.gz",
        f"mauve-metrics-{version}.tgz",
    ]


def lacks_site(dist: Path, version: str) -> list[str]:
    """Return the packages of the service that hold no documentation."""
    wheel, source = (dist / name for name in packages(version)[:2])
    with zipfile.ZipFile(wheel) as built, tarfile.open(source) as archive:
        held = {
            wheel.name: {SITE_PAGE.removeprefix("src/")} & set(built.namelist()),
            source.name: {f"mauve-{version}/{SITE_PAGE}"} & set(archive.getnames()),
        }
    return [name for name, page in held.items() if not page]


def installed_versions(root: Path, dist: Path, scratch: Path, version: str) -> Iterator[tuple[str, str]]:
    """Install each package in a scratch folder, and yield what it is and the version that it states when it runs."""
    service, python_client, typescript_client = (dist / name for name in packages(version)[::2])
    environment = scratch / "environment"
    run(scratch, sys.executable, "-m", "venv", "--without-pip", str(environment))
    pip = (sys.executable, "-m", "pip", "--quiet", "--python", str(environment / "bin" / "python"))
    run(scratch, *pip, "install", "--require-hashes", "-r", str(root / "requirements" / "runtime.txt"))
    run(scratch, *pip, "install", "--no-deps", "--no-index", str(service), str(python_client))
    run(scratch, *pip, "check")
    yield "service", run(scratch, str(environment / "bin" / "mauve"), "--version").removeprefix("mauve ")
    program = "import mauve_metrics; print(mauve_metrics.__version__)"
    yield "Python client", run(scratch, str(environment / "bin" / "python"), "-c", program)
    run(scratch, "npm", "install", "--no-progress", "--no-audit", "--no-fund", str(typescript_client))
    program = "import('mauve-metrics').then((m) => { if (!m.Mauve) throw new Error('it exports no Mauve') })"
    run(scratch, "node", "-e", program)
    held = scratch / "node_modules" / "mauve-metrics" / "package.json"
    yield "TypeScript client", json.loads(held.read_text())["version"]


def run(folder: Path, *command: str) -> str:
    """Run a step of the release; end the program with its output if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=STEP_S_MAX, check=False)
    except FileNotFoundError:
        sys.exit(f"release: {command[0]} is missing: install it")
    if done.returncode != 0:
        sys.exit(f"release: this failed; fix it, then start again: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def main() -> None:
    version = version_in(ROOT)
    found = list(faults(ROOT))
    if changed := changed_files(ROOT):
        found.append(f"{len(changed)} files differ from the last commit, {changed[0].split()[-1]} first: commit them")
    if found:
        sys.exit("\n".join(f"release: {fault}" for fault in found))
    dist = ROOT / "dist"
    print(
        f"{version}: the tree is clean and all versions agree; building documentation and packages ...",
        flush=True,
    )
    build_all(ROOT, dist)
    for name in packages(version):
        if not (dist / name).is_file():
            sys.exit(f"release: dist/{name} was not built: compare its name with the version")
        print(f"  dist/{name}  {(dist / name).stat().st_size:,} bytes", flush=True)
    if found := lacks_site(dist, version):
        sys.exit(f"release: {found[0]} lacks the documentation: run 'make docs', and see why its pages are left out")
    print("installing them in a scratch folder ...", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for what, stated in installed_versions(ROOT, dist, Path(scratch), version):
            print(f"  {what}: {stated}", flush=True)
            if stated != version:
                sys.exit(f"release: the {what} states {stated}, not {version}: build it again from a clean tree")
    print("nothing was published: docs/releasing.md has the next steps")


if __name__ == "__main__":
    main()
