"""The billing providers whose webhooks are accepted."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Provider(StrEnum):
    """The billing providers whose webhooks we take."""

    BILLER_A = "biller_a"
    BILLER_B = "biller_b"


BILLER_NAMES: Final[Mapping[str, str]] = {
    Provider.BILLER_A: "Stripe (biller_a)",
    Provider.BILLER_B: "Polar (biller_b)",
}
"""What people call the billers, beside the words that stand for them in paths and options."""
