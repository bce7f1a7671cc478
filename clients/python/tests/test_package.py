"""The package as others get it: old syntax, types, a wheel that installs into an empty environment."""

import ast
import inspect
import os
import re
import subprocess
import sys
import venv
from graphlib import TopologicalSorter
from pathlib import Path
from zipfile import ZipFile

import pytest
import tomllib

import mauve_metrics
from stub import KEY, PATIENCE_S

HERE = Path(__file__).parents[1]
SOURCES = sorted((HERE / "src").rglob("*.py"))


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S, **options)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_module_is_valid_in_python_39_and_short(path):
    text = path.read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    compile(text, str(path), "exec")
    assert len(text.splitlines()) <= 400
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    assert [node.name for node in functions if node.end_lineno - node.lineno > 50] == []


def test_no_module_imports_anything_but_the_standard_library():
    imported = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"mauve_metrics"}


def test_no_module_imports_itself_through_others():
    graph = {}
    for path in SOURCES:
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        modules = {node.module for node in nodes if node.module.startswith("mauve_metrics.")}
        modules |= {f"mauve_metrics.{alias.name}" for n in nodes if n.module == "mauve_metrics" for alias in n.names}
        graph["mauve_metrics." + path.stem] = modules & {"mauve_metrics." + each.stem for each in SOURCES}
    assert len(list(TopologicalSorter(graph).static_order())) == len(SOURCES)


def test_the_version_is_that_of_the_service():
    project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())["project"]
    assert mauve_metrics.__version__ == project["version"]


def test_every_option_is_in_the_readme():
    names = mauve_metrics.Mauve.__init__.__annotations__.keys() - {"return", "_clock"}
    text = (HERE / "README.md").read_text()
    assert len(names) == 12
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize("kind", [mauve_metrics.Mauve, mauve_metrics.Metrics, mauve_metrics.Control])
def test_every_call_and_every_argument_is_in_the_readme(kind):
    words = set(re.findall(r"\w+", (HERE / "README.md").read_text()))
    calls = [call for name, call in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    arguments = {name for call in [kind.__init__, *calls] for name in inspect.signature(call).parameters}
    assert len(calls) >= 6
    assert {call.__name__ for call in calls} - words == set()
    assert {name for name in arguments if not name.startswith("_")} - words - {"self", "token_or_key"} == set()


def test_the_readme_has_no_link_that_breaks_outside_the_repository():
    assert re.findall(r"\]\((?!https://)[^)]*\)", (HERE / "README.md").read_text()) == []


def test_the_license_is_that_of_the_service():
    assert (HERE / "LICENSE").read_text() == (HERE.parents[1] / "LICENSE").read_text()


def test_types_are_strict_for_the_package_and_its_users():
    command = [sys.executable, "-m", "mypy", "--config-file", str(HERE / "pyproject.toml")]
    run(*command, "--cache-dir", os.devnull, "src", "tests/typing_sample.py", cwd=HERE)


SEND = """
import sys
from mauve_metrics import Mauve
with Mauve(sys.argv[1], url=sys.argv[2]) as mauve:
    mauve.track("installed")
print(mauve.stats.accepted)
"""


def test_the_wheel_and_the_source_archive_install_into_an_empty_environment(service, tmp_path):
    run(sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / "dist"), cwd=HERE)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    assert wheel.name == f"mauve_metrics-{mauve_metrics.__version__}-py3-none-any.whl"
    run(sys.executable, "-m", "tarfile", "-e", str(archive), str(tmp_path / "unpacked"))
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert (unpacked / "src/mauve_metrics/py.typed").is_file()
    assert (unpacked / "LICENSE").is_file()
    with ZipFile(wheel) as content:
        (license_name,) = [name for name in content.namelist() if name.endswith("/LICENSE")]
        assert content.read(license_name) == (HERE / "LICENSE").read_bytes()
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv/bin/python")
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    assert run(python, "-P", "-c", SEND, KEY, service.url, cwd=tmp_path).stdout == "1\n"
    assert [item["name"] for item in service.items()] == ["installed"]
