"""Build packages of the service from a source folder."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Packages:
    wheel: Path
    sdist: Path


def build(source: Path, into: Path, *targets: str) -> None:
    """Build the wheel and the source distribution, or some of them."""
    chosen = [part for target in targets for part in ("--target", target)]
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(into), *chosen]
    subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
