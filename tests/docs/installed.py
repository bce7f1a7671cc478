"""In place of `pip` and `npm` while examples run: check that the packages are there already."""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

NODE_MODULES = Path(__file__).parent / "node/node_modules"
OWN = {"mauve-metrics", "./clients/python"}


def is_installed(package: str) -> bool:
    if package in OWN and importlib.util.find_spec("mauve_metrics"):
        return True
    if (NODE_MODULES / package).is_dir():
        return True
    try:
        importlib.metadata.version(package.partition("[")[0])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    action, *packages = sys.argv[1:]
    missing = [package for package in packages if not is_installed(package)]
    if action != "install" or missing or not packages:
        sys.exit(f"the examples' environment lacks {missing}: add it to requirements/docs.in or tests/docs/node")
