"""The billing providers whose webhooks are accepted."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Provider(StrEnum):
    """A billing provider."""

    BILLER_A = "biller_a"
    BILLER_B = "biller_b"


BILLER_NAMES: Final[Mapping[str, str]] = {
    Provider.BILLER_A: "Stripe",
    Provider.BILLER_B: "Polar",
}
"""The providers' names for people; paths and options use the values."""

ID_PREFIXES: Final[Mapping[Provider, str]] = {Provider.BILLER_A: "stripe:", Provider.BILLER_B: "polar:"}
"""What the ids of payments and subscriptions begin with that a biller's deliveries become."""


def other_ids(id_: str) -> list[str]:
    """Return the ids that the same payment or subscription has if another source sent it, too."""
    prefixes = ID_PREFIXES.values()
    return [id_.removeprefix(each) for each in prefixes if id_.startswith(each)] or [each + id_ for each in prefixes]
