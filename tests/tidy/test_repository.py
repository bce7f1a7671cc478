"""Test the repository itself as data."""

import ast
import itertools
import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from mauve.core.problems import Code
from mauve.ingest.webhooks.parsed import DeliveryWarning
from mauve.ingest.webhooks.signatures import SignatureFailure
from mauve.stores.deliveries import DeliveryResult

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
FORBIDDEN_NAMES = re.compile(r"(?i)manager|helper|util|common|abstract|impl|processor|mapper")
HOSTS = re.compile(r"(?i)\b[\w.-]*(?:py" + r"pi|pythonhosted|npm" + r"js|deb" + r"ian)\.(?:org|com|net)\b")
LOCAL_PATHS = re.compile(r"(?<![\w.])/(?:wo" + r"rk|ro" + r"ot|home)/")


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listing.decode().split("\0") if name and (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    return path.read_text(errors="ignore")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_source_files_are_found():
    assert len(SOURCES) > 40
    assert len(tracked()) > 80


def definitions(path: Path, *kinds: type[ast.AST]) -> list:
    return [node for node in ast.walk(ast.parse(text_of(path))) if isinstance(node, kinds)]


def test_no_module_is_longer_than_the_limit():
    lines = {name_of(path): len(text_of(path).splitlines()) for path in SOURCES}
    assert {name: count for name, count in lines.items() if count > MODULE_LINES_MAX} == {}


def test_no_function_is_longer_than_the_limit():
    too_long = [
        f"{name_of(path)}: {node.name}"
        for path in SOURCES
        if "migrations" not in path.parts
        for node in definitions(path, ast.FunctionDef, ast.AsyncFunctionDef)
        if node.end_lineno - node.lineno > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_no_name_uses_a_forbidden_word():
    named = [(name_of(path), path.stem) for path in SOURCES] + [
        (name_of(path), node.name)
        for path in SOURCES
        for node in definitions(path, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    ]
    assert len(named) > 1000
    assert [f"{where}: {name}" for where, name in named if FORBIDDEN_NAMES.search(name)] == []


def test_only_the_config_module_reads_environment_variables():
    readers = [path for path in SOURCES if re.search(r"os\.environ|os\.getenv|getenv\(", text_of(path))]
    assert [path.name for path in readers] == ["config.py"]


def test_every_error_code_has_golden_files():
    golden = {path.name for path in (ROOT / "tests/golden/errors").iterdir()}
    assert golden == {f"{envelope}-{code}.json" for envelope in ("control", "data") for code in Code}


def test_no_file_names_a_package_registry_or_a_local_path():
    found = [
        f"{name_of(path)}: {match.group()}"
        for path in tracked()
        for pattern in (HOSTS, LOCAL_PATHS)
        for match in pattern.finditer(text_of(path))
    ]
    assert found == []


def test_every_requirement_is_pinned_with_hashes():
    for name in ("build", "runtime", "dev", "docs"):
        lines = [
            line
            for line in text_of(ROOT / f"requirements/{name}.txt").splitlines()
            if line and not line.startswith("#")
        ]
        pins = [line for line in lines if not line.startswith(" ")]
        assert pins
        assert all("==" in line for line in pins)
        assert all(line.strip().startswith("--hash=sha256:") for line in lines if line.startswith(" "))


def test_the_package_requires_exactly_what_is_pinned():
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    extras = itertools.chain.from_iterable(project["optional-dependencies"].values())  # A checkout can use them all.
    wanted = [*project["dependencies"], *(name for name in extras if not name.startswith("mauve["))]
    pinned = text_of(ROOT / "requirements/runtime.in").split("\n")
    assert sorted(re.split(r"[ ;<>=]", name)[0] for name in wanted) == sorted(
        re.split(r"[ ;]", name)[0] for name in pinned if name
    )


def test_every_make_target_in_the_readme_exists():
    targets = set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    mentioned = set(re.findall(r"(?:^|`)make ([a-z]+)", text_of(ROOT / "README.md"), re.MULTILINE))
    assert {"serve", "test"} <= mentioned <= targets


def test_every_link_between_documents_has_a_target():
    documents = [path for path in tracked() if path.suffix == ".md"]
    broken = [
        f"{name_of(path)} -> {target}"
        for path in documents
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(path))
        if not (path.parent / target).exists()
    ]
    assert len(documents) > 4
    assert broken == []


def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as a repository's web page and the generator make them."""
    text = re.sub(r"^ *```.*?^ *```", "", text_of(path), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_every_anchor_that_a_document_links_to_exists():
    documents = [path for path in tracked() if path.suffix == ".md"]
    links = [
        (path, (path.parent / target).resolve() if target else path, anchor)
        for path in documents
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text_of(path))
    ]
    assert len(links) > 30
    assert [
        f"{name_of(path)} -> {name_of(target)}#{anchor}"
        for path, target, anchor in links
        if target.suffix == ".md" and anchor not in anchors_of(target)
    ] == []


def test_every_document_is_in_the_navigation_of_the_site():
    config = text_of(ROOT / "docs/site/zensical.toml")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in tracked() if path.is_relative_to(ROOT / "docs")]
    listed = [name for name in pages if name.endswith(".md") and not name.startswith("decisions/")]
    listed.remove("package.md")  # shown where the package is published
    assert len(listed) > 15
    assert [name for name in listed if f'"{name}"' not in config] == []


def test_every_folder_of_the_package_is_in_the_layer_table():
    folders = {path.name for path in (ROOT / "src/mauve").iterdir() if path.is_dir() and path.name != "__pycache__"}
    table = text_of(ROOT / "CONTRIBUTING.md")
    assert [folder for folder in sorted(folders) if f"`{folder}/`" not in table] == []


def test_every_delivery_result_and_warning_is_documented():
    documented = set(re.findall(r"`([a-z_]+)`", text_of(ROOT / "docs/billing.md")))
    assert [word for word in (*DeliveryResult, *SignatureFailure, *DeliveryWarning) if word not in documented] == []


def test_a_worker_imports_no_module_that_only_the_core_needs():
    """Each of these modules costs every worker a dozen megabytes and part of a second at start-up."""
    heavy = {"alembic", "argon2", "chdb", "jinja2", "mauve.load.loader", "numpy", "pandas", "pyarrow"}
    program = "import json, sys, mauve.server.worker; print(json.dumps(list(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert heavy.isdisjoint(json.loads(loaded))


def test_the_index_of_proofs_is_current():
    """`python docs/index_tests.py` updates it from the docstrings of the test modules."""
    index = runpy.run_path(str(ROOT / "docs/index_tests.py"))
    page, faults = index["indexed"](text_of(index["PAGE"]), index["proofs"]())
    assert faults == []
    assert page == text_of(index["PAGE"])
    assert len(index["proofs"]()) > 50


def test_a_guarantee_without_a_test_and_a_test_without_a_guarantee_are_found():
    indexed = runpy.run_path(str(ROOT / "docs/index_tests.py"))["indexed"]
    rows = "| `durable` | 202 means durable | |\n| `kills` | a kill loses nothing | `tests/old.py` |"
    page, faults = indexed(rows, {"kills": ["tests/a.py", "tests/b.py"], "speed": ["tests/c.py"]})
    assert page.splitlines()[1] == "| `kills` | a kill loses nothing | `tests/a.py`, `tests/b.py` |"
    assert faults == ["no test proves 'durable'", "tests/c.py: the page has no guarantee 'speed'"]


def test_every_module_named_in_the_documents_exists():
    """A document names a module by its path below the package, the repository, or the document's own folder."""
    named = [
        (document, name)
        for document in tracked()
        if document.suffix == ".md" and document.name != "CHANGELOG.md"
        for name in re.findall(r"`((?:\w+/)+\w+\.py)`", text_of(document))
    ]
    missing = [
        f"{name_of(document)}: {name}"
        for document, name in named
        if not any((folder / name).is_file() for folder in (ROOT / "src/mauve", ROOT, document.parent))
    ]
    assert len(named) > 30
    assert missing == []


def test_measured_figures_are_only_in_the_performance_document():
    """A figure quoted twice soon disagrees with itself. Decision records keep what was measured for them."""
    measured = re.compile(r"\d[\d,.]*k? (?:(?:events|requests|batches)/s|us\b|ms\b|bytes (?:an|per|a) (?:event|row))")
    quoted = [
        f"{name_of(path)}: {match.group()}"
        for path in tracked()
        if path.suffix == ".md" and path.parent.name != "decisions" and path.name != "performance.md"
        for match in measured.finditer(text_of(path))
    ]
    assert quoted == []


def test_the_hosted_workflow_runs_every_step_of_ci():
    steps = re.search(r"set -- (.+)", text_of(ROOT / ".ci" / "run"))[1].split()
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "change.yml").read_text())
    assert workflow["jobs"]["step"]["strategy"]["matrix"]["target"] == steps
