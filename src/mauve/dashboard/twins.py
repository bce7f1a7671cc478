"""Find payments and subscriptions that count twice, because code and a biller's webhook both sent them."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from mauve.core.biller import other_ids

LOOKED_AT: Final = 500
"""The number of latest rows to compare. If two sources are in use, both are among the latest."""
_SHOWN: Final = 3


class _Listed(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_Listed)


def twins_among(
    latest: Sequence[T], with_ids: Callable[[Sequence[str]], Sequence[T]], count_twice: Callable[[T, T], bool]
) -> list[tuple[T, T]]:
    """Return a few pairs that count twice, each with the plain id first and the biller's second."""
    known = {each.id: each for each in latest}
    missing = {other for id_ in known for other in other_ids(id_)} - known.keys()
    known |= {each.id: each for each in with_ids(sorted(missing))} if missing else {}
    pairs = ((each, known[other]) for id_, each in known.items() for other in other_ids(id_) if other in known)
    return [(one, two) for one, two in pairs if len(one.id) < len(two.id) and count_twice(one, two)][:_SHOWN]
