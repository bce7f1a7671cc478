"""The payments page of an app: the list of payments, latest first, and those that count twice."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from starlette.responses import Response

from mauve.core.biller import BILLER_NAMES, other_ids
from mauve.core.money import is_currency
from mauve.core.window import today_at
from mauve.dashboard.charts.periods import Period, period_from
from mauve.dashboard.context import (
    MemberContext,
    ParameterProblem,
    shown_project,
)
from mauve.dashboard.pages.sheets import PIECE_ROWS, ROWS_MAX, sheet, sheet_name
from mauve.dashboard.rendering import project_page
from mauve.dashboard.text import instant
from mauve.ingest.webhooks.parsed import DeliveryWarning
from mauve.stores.ledger import CLIENT
from mauve.stores.ledger.payment_list import ListedPayment, PaymentFilter, PaymentPosition, PaymentReader

LOOKED_AT: Final = 500
"""The number of latest rows to compare. If two sources are in use, both are among the latest."""
_SHOWN: Final = 3
PAGE_ROWS: Final = 50
SOURCES: Final[Mapping[str, str]] = {CLIENT: "API", **BILLER_NAMES}
_FILTERS: Final = ("currency", "source", "user", "id")
_CODE_LETTERS: Final = 3
_MS_DIGITS_MAX: Final = 18  # more would not fit into 64 bits
_TITLES: Final = ("time", "amount_minor_units", "currency", "kind", "user", "id", "source", "fee_unknown")


class _Listed(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_Listed)


def twins_among(
    latest: Sequence[T], with_ids: Callable[[Sequence[str]], Sequence[T]], count_twice: Callable[[T, T], bool]
) -> list[tuple[T, T]]:
    """Return a few pairs that count twice, each with the plain id first and the biller's second."""
    known = {each.id: each for each in latest}
    missing = {other for id_ in known for other in other_ids(id_)} - known.keys()
    known |= {each.id: each for each in with_ids(sorted(missing))} if missing else {}
    pairs = ((each, known[other]) for id_, each in known.items() for other in other_ids(id_) if other in known)
    return [(one, two) for one, two in pairs if len(one.id) < len(two.id) and count_twice(one, two)][:_SHOWN]


def show_payments(context: MemberContext) -> Response:
    app, period = context.app(), period_from(context.query, today_at(context.now_ms))
    project, chosen = shown_project(context, app), _filter_from(context, period)
    found = context.parts.payments.page(project, chosen, _position(context.asked("after")), PAGE_ROWS + 1)
    shown = found[:PAGE_ROWS]
    latest = context.parts.payments.page(project, PaymentFilter(period.window), None, LOOKED_AT)
    return project_page(
        context,
        "payments.html",
        app,
        period=period,
        chosen={name: value for name in _FILTERS if (value := context.asked(name).strip())},
        payments=shown,
        twins=twins_among(latest, partial(context.parts.payments.with_ids, project), _from_two_sources),
        sources=SOURCES,
        fee_unknown=DeliveryWarning.FEE_UNKNOWN,
        rows_max=ROWS_MAX,
        next_page=_cursor_of(shown[-1]) if len(found) > PAGE_ROWS else None,
    )


def _from_two_sources(one: ListedPayment, two: ListedPayment) -> bool:
    return one.source != two.source


def export_payments(context: MemberContext) -> Response:
    app, period = context.app(), period_from(context.query, today_at(context.now_ms))
    chosen = _filter_from(context, period)
    rows = map(_cells, _all_payments(context.parts.payments, shown_project(context, app), chosen))
    return sheet(context, sheet_name(context, app, "payments", period.window), _TITLES, rows)


def _all_payments(payments: PaymentReader, project: str, chosen: PaymentFilter) -> Iterator[ListedPayment]:
    after = None
    while found := payments.page(project, chosen, after, PIECE_ROWS):
        yield from found
        after = PaymentPosition(found[-1].occurred_at, found[-1].id)


def _cells(payment: ListedPayment) -> tuple[str | int | None, ...]:
    return (
        instant(payment.occurred_at),
        payment.amount,
        payment.currency,
        "revenue" if payment.earned else "volume",
        payment.user,
        payment.id,
        payment.source,
        "yes" if DeliveryWarning.FEE_UNKNOWN in payment.flags else "no",
    )


def _filter_from(context: MemberContext, period: Period) -> PaymentFilter:
    currency, source, user, id_ = (context.asked(name).strip() or None for name in _FILTERS)
    if currency is not None and not is_currency(currency.lower()):
        raise ParameterProblem(_unknown_currency(currency), "currency")
    if source is not None and source not in SOURCES:
        raise ParameterProblem("there is no such source, so every source is shown: choose one from the list", "source")
    return PaymentFilter(period.window, currency and currency.lower(), source, user, id_)


def _unknown_currency(text: str) -> str:
    """Describe an invalid currency; echo it only if it looks like a code."""
    if len(text) == _CODE_LETTERS and text.isascii() and text.isalpha():
        return f"{text.upper()} is not a supported currency, so every currency is shown: use a code such as EUR"
    return "a currency is a code of three letters, such as EUR; every currency is shown"


def _cursor_of(payment: ListedPayment) -> str:
    return f"{payment.occurred_at}:{payment.id}"


def _position(text: str) -> PaymentPosition | None:
    if not text:
        return None
    moment, separator, id_ = text.partition(":")
    if not separator or not moment.isdecimal() or len(moment) > _MS_DIGITS_MAX:
        raise ParameterProblem("this page of the list does not exist; here is the first one", "after")
    return PaymentPosition(int(moment), id_)
