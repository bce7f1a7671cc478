"""`make bench`: measure, and compare each figure with its floor and its aim. A missed floor fails the run."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import (
    clients,
    cluster,
    control,
    engines,
    footprint,
    ingest,
    loading,
    overload,
    pages,
    reads,
    recovery,
    webhooks,
)
from bench.report import Figure, render

RESULTS = Path(__file__).parent / "results" / "latest.json"
MEASURES = {
    "ingest": ingest.measure,
    "loading": loading.measure,
    "recovery": recovery.measure,
    "webhooks": webhooks.measure,
    "control": control.measure,
    "pages": pages.measure,
    "reads": reads.measure,
    "overload": overload.measure,
    "engines": engines.measure,
    "cluster": cluster.measure,
    "clients": clients.measure,
    "footprint": footprint.measure,
}
SIZED = ("reads", "recovery")  # at several numbers of stored events
ONLY_ON_REQUEST = ("overload", "engines", "cluster", "clients", "footprint")  # They take minutes.


def main() -> None:
    options = parse_options(sys.argv[1:])
    figures = list(_measure(options))
    print(render(figures))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([figure.as_dict() for figure in figures], indent=2) + "\n")
    print(f"\nwritten to {RESULTS.relative_to(Path.cwd())}")
    sys.exit(1 if any(figure.is_regression for figure in figures) else 0)


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; without arguments, measure everything that `make bench` does."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="run some of the benchmarks, or all")
    parser.add_argument("planes", nargs="*", type=_plane, metavar="|".join(MEASURES))
    parser.add_argument(
        "--full", action="store_true", help=f"{' and '.join(SIZED)}: also at 100 million events; takes a few minutes"
    )
    parser.add_argument(
        "--millions", type=int, nargs="+", default=[1, 20], help=f"{' and '.join(SIZED)}: sizes in million events"
    )
    options = parser.parse_args(arguments)
    options.planes = options.planes or [name for name in MEASURES if name not in ONLY_ON_REQUEST]
    options.millions += [100] if options.full else []
    return options


def _plane(name: str) -> str:
    if name not in MEASURES:
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(MEASURES)}")
    return name


def _measure(options: argparse.Namespace) -> Iterator[Figure]:
    for name in options.planes:
        for figure in MEASURES[name](options.millions) if name in SIZED else MEASURES[name]():
            print(f"{name}: {figure.name}: {figure.figure}", file=sys.stderr, flush=True)
            yield figure


if __name__ == "__main__":
    main()
