"""Maintenance: backup, restore, erasing a user, and raw event retention."""
