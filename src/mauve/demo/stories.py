"""The three apps of the demonstration."""

from dataclasses import dataclass
from typing import Final

from mauve.core.app import AppType, Ownership


@dataclass(frozen=True, slots=True)
class Plan:
    price: int  # minor units, for a month or a year
    currency: str
    months: int = 1

    @property
    def mrr(self) -> int:
        """Return the price of a month, half up, as billers' prices are counted."""
        return (2 * self.price + self.months) // (2 * self.months)


@dataclass(frozen=True, slots=True)
class Story:
    name: str
    type: AppType
    ownership: Ownership
    users_at_first: int
    signups_a_day: float
    growth_a_day: float
    weekend: float  # how much of a weekday's activity is left
    events: tuple[tuple[str, int], ...]  # names and how often each is chosen
    plans: tuple[Plan, ...] = ()
    converts: float = 0.0  # which part of those who sign up begins a trial
    orders_a_day: float = 0.0  # of a marketplace
    order_currencies: tuple[str, ...] = ()


STORIES: Final = (
    Story(
        name="Aster Notes",
        type=AppType.SAAS,
        ownership=Ownership.MINE,
        users_at_first=420,
        signups_a_day=14,
        growth_a_day=0.011,
        weekend=0.45,
        events=(("note_opened", 60), ("note_created", 22), ("note_shared", 8), ("search", 14), ("export", 2)),
        plans=(Plan(900, "eur"), Plan(1900, "eur"), Plan(19_000, "eur", 12), Plan(1200, "usd"), Plan(4900, "usd")),
        converts=0.16,
    ),
    Story(
        name="Bramble Market",
        type=AppType.OTHER,
        ownership=Ownership.CLIENT_OPERATED,
        users_at_first=900,
        signups_a_day=20,
        growth_a_day=0.004,
        weekend=1.35,
        events=(("listing_viewed", 80), ("listing_saved", 9), ("message_sent", 12), ("checkout_started", 6)),
        orders_a_day=26,
        order_currencies=("eur", "eur", "usd"),
    ),
    Story(
        name="Clover Kit",
        type=AppType.DESKTOP,
        ownership=Ownership.MINE,
        users_at_first=150,
        signups_a_day=4,
        growth_a_day=-0.003,
        weekend=0.7,
        events=(("app_started", 40), ("project_built", 25), ("update_installed", 3), ("crash_reported", 1)),
        plans=(Plan(500, "usd"), Plan(4800, "usd", 12)),
        converts=0.22,
    ),
)
