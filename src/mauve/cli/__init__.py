"""The command line. Its commands, options, exit codes and JSON are stable: other programs use them."""
