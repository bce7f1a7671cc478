"""Errors of maintenance commands. Each message says what to do."""


class MaintenanceRefusedError(Exception):
    """The command cannot run as given; nothing was changed."""


class MaintenanceFailedError(Exception):
    """The command failed halfway; existing data is intact."""
