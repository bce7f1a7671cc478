"""`make bench`: measure, and hold each figure against its floor and its aim. A missed floor fails the run."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import control, ingest, lasting, loading, overload, pages, reads, webhooks
from bench.report import Figure, render

RESULTS = Path(__file__).parent / "results" / "latest.json"
MEASURES = {
    "ingest": ingest.measure,
    "loading": loading.measure,
    "lasting": lasting.measure,
    "webhooks": webhooks.measure,
    "control": control.measure,
    "pages": pages.measure,
    "reads": reads.measure,
    "overload": overload.measure,
}
WHEN_ASKED_FOR = ("overload",)  # It takes minutes.


def main() -> None:
    wanted = wanted_by(sys.argv[1:])
    figures = list(_measured(wanted))
    print(render(figures))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([figure.as_dict() for figure in figures], indent=2) + "\n")
    print(f"\nwritten to {RESULTS.relative_to(Path.cwd())}")
    sys.exit(1 if any(figure.is_regression for figure in figures) else 0)


def wanted_by(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what the command line asks for: without a word all that `make bench` measures."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="measure some planes, or all")
    parser.add_argument("planes", nargs="*", type=_plane, metavar="|".join(MEASURES))
    parser.add_argument("--full", action="store_true", help="reads: also at 100 million events; takes some minutes")
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 20], help="reads: at how many million events")
    wanted = parser.parse_args(arguments)
    wanted.planes = wanted.planes or [name for name in MEASURES if name not in WHEN_ASKED_FOR]
    wanted.millions += [100] if wanted.full else []
    return wanted


def _plane(name: str) -> str:
    if name not in MEASURES:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(MEASURES)}")
    return name


def _measured(wanted: argparse.Namespace) -> Iterator[Figure]:
    for name in wanted.planes:
        for figure in MEASURES[name](wanted.millions) if name == "reads" else MEASURES[name]():
            print(f"{name}: {figure.name}: {figure.figure}", file=sys.stderr, flush=True)
            yield figure


if __name__ == "__main__":
    main()
