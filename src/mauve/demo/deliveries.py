"""What the biller has delivered lately: mostly well, with a few things for the owner to look at."""

from typing import Final

from mauve.core.biller import Provider
from mauve.demo.history import Place
from mauve.demo.stories import Story
from mauve.stores.deliveries import Delivery, DeliveryResult, Tally
from mauve.stores.ledger import Entry

_HOUR_MS: Final = 3_600_000
_STORED, _IGNORED, _UNUSABLE = DeliveryResult.STORED, DeliveryResult.IGNORED, DeliveryResult.UNUSABLE
# Type, result, rows, warnings: the oldest first.
_USUAL: Final = (
    ("customer.subscription.updated", _STORED, 1, ()),
    ("invoice.paid", _STORED, 1, ()),
    ("charge.succeeded", _IGNORED, 0, ()),
    ("invoice.paid", _STORED, 1, ()),
)
_OF_A_MARKETPLACE: Final = (
    ("invoice.paid", _STORED, 2, ()),
    ("invoice.paid", _STORED, 1, ("fee_unknown",)),
    ("charge.succeeded", _IGNORED, 0, ()),
    ("invoice.paid", _UNUSABLE, 0, ("currency_unusable",)),
    ("invoice.paid", _STORED, 2, ()),
)
_REFUSED_COUNT: Final = 3


def deliveries_of(story: Story, place: Place, now_ms: int) -> list[Entry]:
    noted = _OF_A_MARKETPLACE if story.orders_a_day else _USUAL
    # The last one comes now: it is signed with the secret that was just saved, which is so verified.
    moments = range(now_ms - (len(noted) - 1) * _HOUR_MS, now_ms + 1, _HOUR_MS)
    made = [
        Entry(delivery=Delivery(place.project, Provider.BILLER_A, at, *each))
        for at, each in zip(moments, noted, strict=True)
    ]
    return [*made, *_refusals(story, place, now_ms)]


def _refusals(story: Story, place: Place, now_ms: int) -> list[Entry]:
    """Return what a wrong secret leaves behind: counts alone."""
    if not story.orders_a_day:
        return []
    last_at = now_ms - 2 * _HOUR_MS
    words = (DeliveryResult.REFUSED, "signature_mismatch")
    return [Entry(tallies=[Tally(place.project, Provider.BILLER_A, word, _REFUSED_COUNT, last_at) for word in words])]
