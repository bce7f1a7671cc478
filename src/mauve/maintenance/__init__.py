"""Keeping the data: backups, what is erased, what is forgotten."""
