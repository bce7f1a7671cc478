"""Maintenance: backup, restore, erasing a user, and raw event retention."""


class Progress:
    """Shows the progress of a command. This one shows nothing."""

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage; `total` is an estimate, or 0 if unknown."""

    def add(self, count: int) -> None:
        """Report `count` more units as done."""
