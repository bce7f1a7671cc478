"""A marketplace's orders: the gross is volume, the fee is revenue."""

from collections.abc import Iterator
from datetime import date
from random import Random
from typing import Final

from mauve.demo.calendar import about, is_weekend, moment_on
from mauve.demo.stories import Story
from mauve.demo.subscribers import Paid

_FEE_PERCENT: Final = 12
_LEAST, _MOST, _USUAL = 900, 24_000, 3_200


def orders_on(story: Story, number: int, day: date, users: int, random: Random) -> Iterator[Paid]:
    pull = story.weekend if is_weekend(day) else 1.0
    expected = story.orders_a_day * (1 + story.growth_a_day) ** number * pull
    for order in range(about(expected, random) if story.orders_a_day else 0):
        gross, currency = int(random.triangular(_LEAST, _MOST, _USUAL)), random.choice(story.order_currencies)
        id_, at, user = f"order_{day}_{order}", moment_on(day, random), f"user_{random.randrange(users)}"
        yield Paid(id_, user, at, gross * _FEE_PERCENT // 100, currency)
        yield Paid(f"{id_}_gross", user, at, gross, currency, earned=False)
