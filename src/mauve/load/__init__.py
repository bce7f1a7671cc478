"""Queued → deduplicated → stored."""
