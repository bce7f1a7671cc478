"""The warehouse in this process: chDB."""
