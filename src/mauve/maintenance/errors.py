"""Why keeping the data fails. The messages say what to do."""


class MaintenanceRefusedError(Exception):
    """What is asked for cannot be done as it stands; nothing was changed."""


class MaintenanceFailedError(Exception):
    """Something failed on the way. What was there before is there still."""
