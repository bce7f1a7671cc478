"""Start a child process: `python -m mauve.server MODULE CONFIG`."""

import gc
import sys
from importlib import import_module

if __name__ == "__main__":
    gc.disable()  # Imports create many objects but no garbage: collection would take a quarter of the startup time.
    main = import_module("mauve.server.child").main
    run = import_module(sys.argv.pop(1)).run
    gc.enable()
    main(run)
