"""Tests replace only public names: a private one is no part of any design, and a test of it proves little."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = sorted(path for folder in ("tests", "clients/python/tests") for path in (ROOT / folder).rglob("*.py"))
REPLACING = {"setattr", "delattr", "patch", "object"}  # of monkeypatch, and of unittest.mock


def private_names_replaced(source: str) -> list[str]:
    """Return the private names that a module replaces in other objects, with their lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _called(node) in REPLACING:
            found += [(node.lineno, name) for name in map(_last_name, node.args[:2]) if _is_private(name)]
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            attributes = [each for each in targets if isinstance(each, ast.Attribute) and not _is_own(each.value)]
            found += [(node.lineno, each.attr) for each in attributes if _is_private(each.attr)]
    return [f"{line}: {name}" for line, name in sorted(found)]


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _last_name(argument: ast.expr) -> str:
    is_text = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    return argument.value.rpartition(".")[2] if is_text else ""


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def test_no_test_replaces_a_private_name():
    found = {str(path.relative_to(ROOT)): private_names_replaced(path.read_text()) for path in TESTS}
    assert len(found) > 200
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "replaced"),
    [
        ("monkeypatch.setattr(Loader, '_load', lambda *_: None)", ["1: _load"]),
        ("monkeypatch.setattr(\n    'mauve.load.runner._RETRY_S', 0)", ["1: _RETRY_S"]),
        ("patch.setattr(runner, '_wait', wait, raising=False)", ["1: _wait"]),
        ("mock.patch.object(runner, '_wait')", ["1: _wait"]),
        ("setattr(runner, '_wait', wait)", ["1: _wait"]),
        ("runner._wait = wait", ["1: _wait"]),
        ("self._wait = wait", []),
        ("monkeypatch.setattr(Tail, '__init__', begin)", []),
        ("monkeypatch.setattr(runner, 'RETRY_S', 0)", []),
    ],
)
def test_private_names_are_recognized(source, replaced):
    assert private_names_replaced(source) == replaced
