"""What happens to a request that is not let in."""

from contextlib import suppress
from typing import Final, NoReturn

from mauve.access.admission import Admission
from mauve.core.problems import Busy
from mauve.web.body import BodyTooLargeError, IncompleteBodyError
from mauve.web.budget import ByteBudget
from mauve.web.messages import OpenRequest

_SMALL_BYTES: Final = 16 * 1024  # The server reads so much by itself, together with the headers.
_LARGE_BYTES: Final = 1024 * 1024
_DISCARDED_BYTES_MAX: Final = 4 * 1024 * 1024


def admitted(admission: Admission, org_id: str) -> float:
    """Enter, now that the body is there: a sender may have been slow, and others quicker."""
    if admission.is_full(org_id):
        raise Busy
    return admission.enter(org_id)


class Discards:
    """Reads what nobody will look at, within bounds.

    A client that is still writing would otherwise see its connection reset instead of our answer. Where there is
    no room even for this, it does.
    """

    def __init__(self) -> None:
        self._budget = ByteBudget(_DISCARDED_BYTES_MAX)

    async def turn_away(self, request: OpenRequest) -> NoReturn:
        size = request.declared_bytes
        if size is not None and _SMALL_BYTES < size <= _LARGE_BYTES and self._budget.take_now(size):
            try:
                with suppress(BodyTooLargeError, IncompleteBodyError):
                    await request.body(_LARGE_BYTES)
            finally:
                self._budget.give_back(size)
        raise Busy
