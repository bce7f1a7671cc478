"""The time between the request to stop and the stop, in which clients move to other machines."""


class Drain:
    """While it is on, everything is answered, `/readyz` with 503, and each reply closes its connection."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.is_on = False

    def begin(self) -> None:
        self.is_on = True
