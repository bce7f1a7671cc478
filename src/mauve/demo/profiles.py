"""Profiles of the three demo apps."""

from dataclasses import dataclass
from typing import Final

from mauve.core.app import AppType, Ownership


@dataclass(frozen=True, slots=True)
class Plan:
    price: int  # minor units, per `months`
    currency: str
    months: int = 1

    @property
    def mrr(self) -> int:
        """Return the monthly price, rounded half up as for billers' prices."""
        return (2 * self.price + self.months) // (2 * self.months)


@dataclass(frozen=True, slots=True)
class AppProfile:
    """How one demo app grows, what its users do, and how it earns money."""

    name: str
    type: AppType
    ownership: Ownership
    initial_users: int
    signups_per_day: float
    growth_per_day: float
    weekend_factor: float  # weekend activity relative to a weekday
    events: tuple[tuple[str, int], ...]  # names and relative frequencies
    plans: tuple[Plan, ...] = ()
    trial_rate: float = 0.0  # the share of signups that start a trial
    orders_per_day: float = 0.0  # for a marketplace
    order_currencies: tuple[str, ...] = ()


PROFILES: Final = (
    AppProfile(
        name="Aster Notes",
        type=AppType.SAAS,
        ownership=Ownership.MINE,
        initial_users=420,
        signups_per_day=14,
        growth_per_day=0.011,
        weekend_factor=0.45,
        events=(("note_opened", 60), ("note_created", 22), ("note_shared", 8), ("search", 14), ("export", 2)),
        plans=(Plan(900, "eur"), Plan(1900, "eur"), Plan(19_000, "eur", 12), Plan(1200, "usd"), Plan(4900, "usd")),
        trial_rate=0.16,
    ),
    AppProfile(
        name="Bramble Market",
        type=AppType.OTHER,
        ownership=Ownership.CLIENT_OPERATED,
        initial_users=900,
        signups_per_day=20,
        growth_per_day=0.004,
        weekend_factor=1.35,
        events=(("listing_viewed", 80), ("listing_saved", 9), ("message_sent", 12), ("checkout_started", 6)),
        orders_per_day=26,
        order_currencies=("eur", "eur", "usd"),
    ),
    AppProfile(
        name="Clover Kit",
        type=AppType.DESKTOP,
        ownership=Ownership.MINE,
        initial_users=150,
        signups_per_day=4,
        growth_per_day=-0.003,
        weekend_factor=0.7,
        events=(("app_started", 40), ("project_built", 25), ("update_installed", 3), ("crash_reported", 1)),
        plans=(Plan(500, "usd"), Plan(4800, "usd", 12)),
        trial_rate=0.22,
    ),
)
