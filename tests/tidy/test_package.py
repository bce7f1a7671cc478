"""What the package promises about its dependencies and its version."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from support.packages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements" / "runtime.txt").read_text(), re.MULTILINE)


def requirements():
    extras = [each for extra in PROJECT["optional-dependencies"].values() for each in extra]
    listed = [Requirement(text) for text in [*PROJECT["dependencies"], *extras]]
    return [each for each in listed if each.name != PROJECT["name"]]


def next_breaking(version):
    """Return the next version that may break a promise: a major one, or a minor one before 1.0."""
    return Version(f"{version.major + 1}") if version.major else Version(f"0.{version.minor + 1}")


def test_every_dependency_allows_what_is_pinned_and_nothing_that_no_test_has_seen():
    """If a pin has a new minor version, raise the bounds in pyproject.toml to it."""
    assert len(requirements()) > 20
    for each in requirements():
        name = canonicalize_name(each.name)
        pinned = min(Version(version) for pin, version in PINS if canonicalize_name(pin) == name)
        bounds = {bound.operator: Version(bound.version) for bound in each.specifier}
        assert bounds.keys() == {">=", "<"}, str(each)
        assert bounds[">="] <= pinned, f"{each}, but {pinned} is pinned"
        assert bounds[">="].release[:2] == pinned.release[:2], f"{each}, but {pinned} is pinned"
        assert bounds["<"] == next_breaking(pinned), f"{each}, but {pinned} is pinned"


def test_the_clients_have_the_version_of_the_service():
    python = (ROOT / "clients/python/src/mauve_metrics/_version.py").read_text()
    typescript = (ROOT / "clients/typescript/package.json").read_text()
    lock = (ROOT / "clients/typescript/package-lock.json").read_text()
    assert f'VERSION = "{PROJECT["version"]}"' in python
    assert f'"version": "{PROJECT["version"]}"' in typescript
    assert re.search(r'"version": "([^"]+)"', lock)[1] == PROJECT["version"]
