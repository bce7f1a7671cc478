"""The usage page: usage in the billing period, its limits, and the event cap."""

from typing import Final

from starlette.responses import Response

from mauve.control import operator
from mauve.control.bodies import invalid_body
from mauve.core.accepted import OrgPeriod
from mauve.core.window import period_ends_at, period_of
from mauve.dashboard.context import MemberContext
from mauve.dashboard.rendering import page, see_other
from mauve.stores import StoreUnavailableError
from mauve.stores.limits.read_meter import Usage

_CAP_MAX: Final = 2**53 - 1
_CAP_DIGITS_MAX: Final = 16
_SEPARATORS: Final = str.maketrans("", "", " ,._'\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}")


def show_usage(context: MemberContext) -> Response:
    return page(
        context,
        "usage.html",
        events=_events(context),
        reads=_reads(context),
        limits=context.organization.limits,
        standing=context.organization.standing_at(context.now_ms),
        period=period_of(context.now_ms),
        resets_at=period_ends_at(context.now_ms),
    )


def set_cap(context: MemberContext) -> Response:
    operator.change_limits(context.control, context.organization.org_id, {"event_cap": cap_from(context.field("cap"))})
    return see_other("/usage", done="saved")


def cap_from(text: str) -> int | None:
    """Parse a cap, with or without thousands separators; None for an empty field."""
    digits = text.strip().translate(_SEPARATORS)
    if not digits:
        return None
    if not digits.isascii() or not digits.isdigit() or len(digits) > _CAP_DIGITS_MAX or int(digits) > _CAP_MAX:
        raise invalid_body("The cap must be a whole number of events. Leave it empty for no cap.")
    return int(digits)


def _events(context: MemberContext) -> int | None:
    """Return the number of events in this period; None if the ledger is unavailable."""
    try:
        return context.parts.usage.events(OrgPeriod(context.organization.org_id, period_of(context.now_ms)))
    except StoreUnavailableError:
        return None


def _reads(context: MemberContext) -> Usage | None:
    """Return the reads in this period; None if the meter is unavailable."""
    try:
        return context.parts.meter.usage(context.organization.org_id, context.now_ms)
    except StoreUnavailableError:
        return None
