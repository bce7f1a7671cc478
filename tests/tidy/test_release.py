"""What `make release` refuses before it builds anything."""

import importlib.util
import re
import shutil
import subprocess
import tarfile
import zipfile

import pytest

from support.packages import ROOT

_spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
release = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(release)
STATING = (release.PYTHON_CLIENT, release.TYPESCRIPT_CLIENT, release.TYPESCRIPT_LOCK, release.RELEASES)
VERSION = release.version_in(ROOT)


@pytest.fixture
def source(tmp_path):
    """The files of this checkout that a release looks at, as they are when it may be made."""
    for name in ("pyproject.toml", "CHANGELOG.md", *STATING):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(re.sub(r"(?m)^## .*$", f"## {VERSION} - 2026-11-16", changelog.read_text(), count=1))
    return tmp_path


def test_a_source_folder_whose_versions_agree_may_be_released(source):
    assert list(release.faults(source)) == []


@pytest.mark.parametrize("name", STATING)
def test_a_file_that_states_another_version_is_named(source, name):
    path = source / name
    path.write_text(path.read_text().replace(f'"{VERSION}"', '"9.9.9"', 1))
    (fault,) = release.faults(source)
    assert fault.startswith(name)
    assert fault.endswith((": make them equal", ": add it"))


@pytest.mark.parametrize("heading", ["Unreleased", f"{VERSION}", "9.9.9 - 2026-11-16"])
def test_the_changelog_begins_with_the_release_and_its_day(source, heading):
    changelog = source / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"## {VERSION} - 2026-11-16", f"## {heading}"))
    (fault,) = release.faults(source)
    assert fault.startswith("CHANGELOG.md")
    assert f"'## {VERSION} - " in fault


def test_a_file_that_is_not_committed_is_found(tmp_path):
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    assert release.changed_files(tmp_path) == []
    (tmp_path / "new.txt").write_text("new")
    assert release.changed_files(tmp_path) == ["?? new.txt"]


def test_the_documentation_is_built_before_the_packages(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(release, "run", lambda _folder, *command: steps.append(command))
    release.build_all(ROOT, tmp_path)
    assert steps[0] == ("make", "docs")
    assert steps[1][1:3] == ("-m", "hatchling")


@pytest.mark.parametrize(("page", "lacking"), [(release.SITE_PAGE, 0), ("src/mauve/openapi/llms.txt", 2)])
def test_a_package_without_the_documentation_is_named(tmp_path, page, lacking):
    wheel, source = release.packages(VERSION)[:2]
    with zipfile.ZipFile(tmp_path / wheel, "w") as built, tarfile.open(tmp_path / source, "w:gz") as archive:
        built.writestr(page.removeprefix("src/"), "page")
        archive.add(ROOT / "README.md", f"mauve-{VERSION}/{page}")
    assert release.lacks_site(tmp_path, VERSION) == [wheel, source][:lacking]
