"""Types are prepared for decoding on import.

msgspec prepares a type when it is first decoded or converted to, with Python code in between: a second thread that
decodes the same type at that moment reads a half-made description, and the process ends with SIGSEGV.
"""

import ast
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"


def late_preparations(source: str) -> list[int]:
    """Return the lines that name a type only when something is decoded."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if prepares_late(call)]


def prepares_late(call: ast.Call) -> bool:
    called = ast.unparse(call.func)
    names_type = any(keyword.arg == "type" for keyword in call.keywords)
    return called == "msgspec.convert" or (called.startswith("msgspec.") and called.endswith(".decode") and names_type)


@pytest.mark.parametrize(
    "call", ["msgspec.json.decode(b'', type=T)", "msgspec.msgpack.decode(b'', type=T)", "msgspec.convert(x, T)"]
)
def test_a_late_preparation_is_found(call):
    assert late_preparations(f"x = 1\ny = {call}") == [2]


def test_decoders_of_types_are_made_on_import():
    found = [
        f"{path.relative_to(SOURCES)}:{line}"
        for path in sorted(SOURCES.rglob("*.py"))
        for line in late_preparations(path.read_text())
    ]
    assert not found, f"make a msgspec Decoder of the type at module level: {found}"
