"""What is kept of a subscription, and what the history of MRR is made from."""

import hashlib
from typing import Final, NamedTuple

STATUS_CHARACTERS_MAX: Final = 200


class MrrStep(NamedTuple):
    """One version of a subscription, as far as MRR is concerned."""

    project: str
    subscription: bytes  # tells one from another
    at: int  # epoch microseconds
    currency: str
    mrr: int | None  # None unless it is active


def kept_status(status: str) -> str:
    """Return the status as it is kept in rows and indexes: a long one as its beginning and a fingerprint.

    What was sent is kept whole beside it.
    """
    if len(status) <= STATUS_CHARACTERS_MAX:
        return status
    fingerprint = hashlib.sha256(status.encode()).hexdigest()[:16]
    return f"{status[:STATUS_CHARACTERS_MAX]}#truncated#{fingerprint}"
