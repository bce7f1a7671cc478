"""What `ask` returns."""

from enum import StrEnum
from typing import NamedTuple

from mauve.metrics.answers import Body


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
    cut_at: int | None = None  # so many rows are in it, and there were more


def packed(body: Body) -> bytes:
    """Return an answer as it is kept: its JSON, below a line with the number of its rows if there were more."""
    return body.bytes if body.cut_at is None else b"%d\n%b" % (body.cut_at, body.bytes)


def unpacked(value: bytes) -> Body:
    if value[:1] == b"{":  # as nearly all are: nothing is copied
        return Body(value)
    line, _, rest = value.partition(b"\n")
    return Body(rest, int(line))
