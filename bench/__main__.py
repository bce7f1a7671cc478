"""`make bench`: measure, and hold each figure against its target. Only ratios within one run are judged."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import control, ingest, lasting, overload, pages, reads, webhooks
from bench.report import Figure, render

RESULTS = Path(__file__).parent / "results" / "latest.json"
PLANES = ("ingest", "lasting", "webhooks", "control", "pages", "reads")
CHOICES = (*PLANES, "overload")  # which takes minutes, and is measured when it is asked for


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="measure some planes, or all")
    parser.add_argument("planes", nargs="*", choices=CHOICES, default=PLANES, metavar="|".join(CHOICES))
    parser.add_argument("--full", action="store_true", help="reads: also at 100 million events; takes some minutes")
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 20], help="reads: at how many million events")
    wanted = parser.parse_args()
    figures = list(_measured(wanted.planes, [*wanted.millions, *([100] if wanted.full else [])]))
    print(render(figures))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([figure.as_dict() for figure in figures], indent=2) + "\n")
    print(f"\nwritten to {RESULTS.relative_to(Path.cwd())}")
    sys.exit(0 if all(figure.met is not False for figure in figures) else 1)


def _measured(wanted: list[str], millions: list[int]) -> Iterator[Figure]:
    if "ingest" in wanted:
        yield from ingest.measure()
    if "lasting" in wanted:
        yield from lasting.measure()
    if "webhooks" in wanted:
        yield from webhooks.measure()
    if "control" in wanted:
        yield from control.measure()
    if "pages" in wanted:
        yield from pages.measure()
    if "reads" in wanted:
        yield from reads.measure(millions)
    if "overload" in wanted:
        yield from overload.measure()


if __name__ == "__main__":
    main()
