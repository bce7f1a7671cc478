"""How far a long command is, for whoever watches it."""

from typing import Protocol


class Progress(Protocol):
    def begin(self, stage: str, bytes_total: int) -> None:
        """Begin a stage. How many bytes it will take is a guess, 0 if there is none."""
        ...

    def add(self, byte_count: int) -> None:
        """Tell that so much more of the stage is done."""
        ...
