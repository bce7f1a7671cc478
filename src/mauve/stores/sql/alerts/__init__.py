"""Alerts and digests in a SQL database, beside the catalog."""
