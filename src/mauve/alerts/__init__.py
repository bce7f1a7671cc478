"""Alerts and digests: decide what is worth a message, keep it until it is sent, and send it."""
