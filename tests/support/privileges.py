"""Run a program that file permissions bind, even if root runs the tests."""

import os

UNPRIVILEGED = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
"""What to put before a command: root without capabilities is a user like any other."""
