"""`mauve backup` as started by the service: at low priority, and never outliving the service.

Its standard input is a pipe that the service holds open and never writes to.
"""

import os
import signal
import threading
import time
from contextlib import suppress
from typing import Final

from mauve.cli.main import main

_NICENESS: Final = 10
_STOP_S_MAX: Final = 5.0
_STANDARD_INPUT: Final = 0
_MAIN_THREAD: Final = threading.get_ident()


def _end_with_service() -> None:
    os.read(_STANDARD_INPUT, 1)
    # The main thread aborts its upload and removes its copies, if there is time.
    signal.pthread_kill(_MAIN_THREAD, signal.SIGTERM)
    time.sleep(_STOP_S_MAX)
    os._exit(1)


if __name__ == "__main__":
    with suppress(OSError):  # A sandboxed service may not be allowed to use this system call.
        os.nice(_NICENESS)
    threading.Thread(target=_end_with_service, daemon=True).start()
    main()
