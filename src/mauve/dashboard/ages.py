"""The age of the figures on a page: one moment for all of them, or a mark on each that is clearly older."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

SAME_AGE_MS: Final = 10_000  # The answers of one page are read at once, but a slow one may take seconds.


@dataclass(frozen=True, slots=True)
class Ages:
    as_of: int | None  # when every figure that is not in `older` was read; None: there is none
    older: Mapping[str, int]  # when the others were read


class Older(NamedTuple):
    """Parts of a page that were read at one earlier moment."""

    names: Sequence[str]
    at: int


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


def older_parts(ages: Ages, names: Mapping[str, str]) -> list[Older]:
    """Return the names of the older parts of a page, newest first; those of one age together, at their earliest."""
    rest = {names[key]: at for key, at in ages.older.items() if key in names}
    groups = []
    while rest:
        newest = max(rest.values())
        group = {name: at for name, at in rest.items() if newest - at <= SAME_AGE_MS}
        groups.append(Older(list(group), min(group.values())))
        rest = {name: at for name, at in rest.items() if name not in group}
    return groups
