"""What the history of MRR is made from."""

from typing import NamedTuple


class MrrStep(NamedTuple):
    """One version of a subscription, as far as MRR is concerned."""

    project: str
    subscription: bytes  # tells one from another
    at: int  # epoch microseconds
    currency: str
    mrr: int | None  # None unless it is active
