"""The age of the figures on a page: one moment for all of them, or a mark on each that is older than the newest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SAME_AGE_MS: Final = 2_000  # The answers of one page are read at once, but not in the same instant.


@dataclass(frozen=True, slots=True)
class Ages:
    as_of: int | None  # when every figure that is not in `older` was read; None: there is none
    older: Mapping[str, int]  # when the others were read


def row_read_at(row: str, read_at: Mapping[str, int]) -> dict[str, int]:
    """Return when the figures of a table's row were read: as one moment if it is the same for all of them."""
    if read_at and max(read_at.values()) - min(read_at.values()) <= SAME_AGE_MS:
        return {row: min(read_at.values())}
    return {f"{row}/{name}": at for name, at in read_at.items()}


def ages_of(read_at: Mapping[str, int]) -> Ages:
    """Return the moment that is true of the newest figures, and the figures that are older."""
    newest = max(read_at.values(), default=0)
    older = {key: at for key, at in read_at.items() if newest - at > SAME_AGE_MS}
    return Ages(min((at for key, at in read_at.items() if key not in older), default=None), older)
