"""`make bench`: measure, and hold each figure against its target. Only ratios within one run are judged."""

import json
import sys
from pathlib import Path

from bench import control, ingest, webhooks
from bench.report import Figure, render

RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    figures: list[Figure] = [*ingest.measure(), *webhooks.measure(), *control.measure()]
    print(render(figures))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([figure.as_dict() for figure in figures], indent=2) + "\n")
    print(f"\nwritten to {RESULTS.relative_to(Path.cwd())}")
    sys.exit(0 if all(figure.met is not False for figure in figures) else 1)


if __name__ == "__main__":
    main()
