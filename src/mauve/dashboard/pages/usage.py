"""Usage and limits: what the billing period has taken so far, and the cap that the owner sets."""

from typing import Final

from mauve.control import operator
from mauve.control.bodies import invalid_body
from mauve.core.accepted import OrgPeriod
from mauve.core.period import period_ends_at, period_of
from mauve.dashboard.context import MemberVisit
from mauve.dashboard.rendering import page, see_other
from mauve.stores.read_meter import Usage
from mauve.stores.unavailable import StoreUnavailableError
from mauve.web.messages import Reply

_CAP_MAX: Final = 2**53 - 1
_CAP_DIGITS_MAX: Final = 16
_SET_APART: Final = str.maketrans("", "", " ,._'\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}")


def show_usage(visit: MemberVisit) -> Reply:
    return page(
        visit,
        "usage.html",
        events=_events(visit),
        reads=_reads(visit),
        limits=visit.organization.limits,
        standing=visit.organization.standing_at(visit.now_ms),
        period=period_of(visit.now_ms),
        resets_at=period_ends_at(visit.now_ms),
    )


def set_cap(visit: MemberVisit) -> Reply:
    operator.change_limits(visit.control, visit.organization.org_id, {"event_cap": cap_from(visit.field("cap"))})
    return see_other("/usage", done="saved")


def cap_from(text: str) -> int | None:
    """Return the cap that somebody typed, with thousands set apart or not; nothing means none."""
    digits = text.strip().translate(_SET_APART)
    if not digits:
        return None
    if not digits.isascii() or not digits.isdigit() or len(digits) > _CAP_DIGITS_MAX or int(digits) > _CAP_MAX:
        raise invalid_body("The cap must be a whole number of events. Leave it empty for no cap.")
    return int(digits)


def _events(visit: MemberVisit) -> int | None:
    """Return what was counted; None while the ledger cannot be read."""
    try:
        return visit.parts.usage.events(OrgPeriod(visit.organization.org_id, period_of(visit.now_ms)))
    except StoreUnavailableError:
        return None


def _reads(visit: MemberVisit) -> Usage | None:
    """Return what was read; None while nothing can be counted."""
    try:
        return visit.parts.meter.usage(visit.organization.org_id, visit.now_ms)
    except StoreUnavailableError:
        return None
