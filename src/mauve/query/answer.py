"""What `ask` returns."""

from enum import StrEnum
from typing import NamedTuple


class Freshness(StrEnum):
    """Where an answer comes from, by the name that clients see."""

    HIT = "hit"
    MISS = "miss"
    UNCACHED = "uncached"
    STALE = "stale"


class Answer(NamedTuple):
    body: bytes  # JSON, as it is sent
    freshness: Freshness
    read_at: int  # epoch ms at which reading began: as old as that it is
    age_s: int | None = None  # of a stale one
