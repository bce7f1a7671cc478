"""The billers' deliveries, for the owner: the most recent ones of each project, and counts of all."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DELIVERIES_KEPT: Final = 200  # for each project


class DeliveryResult(StrEnum):
    STORED = "stored"
    IGNORED = "ignored"  # not relevant: another type, or no money moved
    CONFLICT = "conflict"  # a payment whose id belongs to another payment; the first one is kept
    UNUSABLE = "unusable"  # a type that we record, with content that cannot be recorded
    SUSPENDED = "suspended"  # acknowledged but not stored, because the organization is suspended


@dataclass(frozen=True, slots=True)
class Delivery:
    project: str  # public id
    provider: str
    at: int  # epoch ms
    type: str  # the biller's name for it
    result: DeliveryResult
    rows: int
    warnings: tuple[str, ...] = ()  # from a closed set

    @property
    def words(self) -> tuple[str, ...]:
        return (self.result, *self.warnings)


@dataclass(frozen=True, slots=True)
class Tally:
    """The count of a label among a project's deliveries, and its last time."""

    project: str
    provider: str
    word: str
    count: int
    last_at: int  # epoch ms
