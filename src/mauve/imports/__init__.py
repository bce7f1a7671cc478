"""Import history from files: read each format, store it exactly once, and undo it."""
