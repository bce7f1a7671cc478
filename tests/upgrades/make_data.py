"""Write a data directory with the code of this checkout, and keep it for the tests of later releases.

PYTHONPATH=tests .venv/bin/python tests/upgrades/make_data.py 0.2.0
"""

import argparse
import sys
import tempfile
from pathlib import Path

from mauve.maintenance.disk_space import format_bytes
from support.upgrade_data import make, pack

ARCHIVE_BYTES_MAX = 300_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the release, which becomes the name of the files")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "made", "data")
        data.parent.mkdir()
        archive = pack(data, given.name, make(data))
    size = archive.stat().st_size
    if size > ARCHIVE_BYTES_MAX:
        archive.unlink()
        sys.exit(f"{archive.name} has {format_bytes(size)}, more than {format_bytes(ARCHIVE_BYTES_MAX)}: send less")
    sys.stdout.write(
        f"{archive}: {format_bytes(size)}; run the tests in {Path(__file__).parent}, then commit both files\n"
    )


if __name__ == "__main__":
    main()
