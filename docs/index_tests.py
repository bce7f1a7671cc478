"""Fill the column `tests` of docs/reliability.md with the test modules that prove each guarantee.

A test module names guarantees in its docstring: `Proves: durable, kills.` Run this after adding one, or after adding,
renaming or deleting such a module. `tests/tidy` fails if the page is out of date.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reliability.md"
PROVES = re.compile(r"^Proves: ([^.]+)\.$", re.MULTILINE)
ROW = re.compile(r"^(\| `([a-z0-9-]+)` \|.*\|) *([^|\n]*)\|$", re.MULTILINE)


def main() -> None:
    page, faults = indexed(PAGE.read_text(), proofs())
    if faults:
        sys.exit("\n".join(faults))
    PAGE.write_text(page)


def proofs() -> dict[str, list[str]]:
    """Return the test modules of each guarantee."""
    found = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        stated = PROVES.search(ast.get_docstring(ast.parse(path.read_text())) or "")
        for name in re.split(r",\s*", stated[1]) if stated else ():
            found[name].append(path.relative_to(ROOT).as_posix())
    return dict(found)


def indexed(page: str, tests: Mapping[str, list[str]]) -> tuple[str, list[str]]:
    """Return the page with its column of tests, and what is wrong with the names of guarantees."""
    names = [match[2] for match in ROW.finditer(page)]
    faults = [f"no test proves '{name}'" for name in names if name not in tests]
    faults += [f"{tests[name][0]}: the page has no guarantee '{name}'" for name in tests if name not in names]
    faults += [f"the page has two guarantees '{name}'" for name in {*names} if names.count(name) > 1]

    def filled(match: re.Match[str]) -> str:
        return f"{match[1]} {', '.join(f'`{path}`' for path in tests.get(match[2], ()))} |"

    return ROW.sub(filled, page), faults


if __name__ == "__main__":
    main()
