"""The billing providers whose webhooks are accepted."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Provider(StrEnum):
    """A billing provider."""

    BILLER_A = "biller_a"
    BILLER_B = "biller_b"


BILLER_NAMES: Final[Mapping[str, str]] = {
    Provider.BILLER_A: "Stripe (biller_a)",
    Provider.BILLER_B: "Polar (biller_b)",
}
"""The providers' names for people; paths and options use the values."""
