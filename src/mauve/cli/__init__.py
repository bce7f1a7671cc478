"""The operator's command line. Stable: other programs call it."""
