"""Let a release write a data directory, and store it for the tests of later releases.

    PYTHONPATH=tests .venv/bin/python tests/upgrades/make_data.py 0.2.0
    PYTHONPATH=tests .venv/bin/python tests/upgrades/make_data.py 0.0.9 --commit 1a2b3c4

Without a commit the code of this checkout writes it.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from mauve.maintenance.disk_space import format_bytes
from support.upgrade_data import Program, git, make, pack, source_of

ARCHIVE_BYTES_MAX = 300_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the release, which becomes the name of the files")
    parser.add_argument("--commit", help="use the code of this commit")
    given = parser.parse_args()
    commit = git("rev-parse", given.commit or "HEAD").decode().strip()
    with tempfile.TemporaryDirectory() as folder:
        program = Program(None if given.commit is None else source_of(commit, Path(folder)))
        data = Path(folder, "made", "data")
        data.parent.mkdir()
        archive = pack(data, given.name, make(program, data), commit)
    size = archive.stat().st_size
    if size > ARCHIVE_BYTES_MAX:
        archive.unlink()
        sys.exit(f"{archive.name} has {format_bytes(size)}, more than {format_bytes(ARCHIVE_BYTES_MAX)}: send less")
    sys.stdout.write(
        f"{archive}: {format_bytes(size)}; run the tests in {Path(__file__).parent}, then commit both files\n"
    )


if __name__ == "__main__":
    main()
