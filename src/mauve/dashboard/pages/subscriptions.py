"""The subscriptions page of an app: which subscriptions count toward the MRR, and why."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import msgspec
from starlette.responses import Response

from mauve.core.subscriptions import likely_status
from mauve.core.window import Window, today_at
from mauve.dashboard.context import (
    MemberContext,
    ParameterProblem,
    shown_project,
)
from mauve.dashboard.pages.payments import LOOKED_AT, twins_among
from mauve.dashboard.pages.sheets import PIECE_ROWS, ROWS_MAX, sheet, sheet_name
from mauve.dashboard.rendering import project_page
from mauve.dashboard.text import instant, listed
from mauve.stores.ledger.subscription_list import (
    CurrentSubscription,
    SubscriptionOrder,
    SubscriptionPosition,
    SubscriptionQuery,
    SubscriptionReader,
    position_of,
)

PAGE_ROWS: Final = 50
_COUNTS_MAX: Final = 50
_TITLES: Final = ("id", "status", "mrr_minor_units", "currency", "counted", "customer", "plan", "updated")
_Stored = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # as the store holds it
_CURSORS: Final[Mapping[SubscriptionOrder, msgspec.json.Decoder[SubscriptionPosition]]] = {
    SubscriptionOrder.UPDATED: msgspec.json.Decoder(tuple[_Stored, bytes]),
    SubscriptionOrder.MRR: msgspec.json.Decoder(tuple[str, _Stored, bytes]),
    SubscriptionOrder.STATUS: msgspec.json.Decoder(tuple[str, _Stored, bytes]),
}


def show_subscriptions(context: MemberContext) -> Response:
    app, query = context.app(), _query_from(context)
    query = replace(query, after=_position(context.asked("after"), query.order))
    project, reader = shown_project(context, app), context.parts.subscriptions
    found = reader.summary(project, query, PAGE_ROWS + 1, _COUNTS_MAX)
    shown = found.subscriptions[:PAGE_ROWS]
    latest = reader.page(project, SubscriptionQuery(), LOOKED_AT)
    return project_page(
        context,
        "subscriptions.html",
        app,
        mrr=found.mrr,
        counts=found.counts,
        statuses=sorted({each.status for each in found.counts if each.status}),
        subscriptions=shown,
        twins=twins_among(latest, partial(reader.with_ids, project), _both_count),
        order=query.order,
        chosen={name: value for name in ("status", "named") if (value := context.asked(name))},
        likely_status=likely_status,
        rows_max=ROWS_MAX,
        next_page=_cursor_of(shown[-1], query.order) if len(found.subscriptions) > PAGE_ROWS else None,
    )


def _both_count(one: CurrentSubscription, two: CurrentSubscription) -> bool:
    return one.status == two.status == "active"


def export_subscriptions(context: MemberContext) -> Response:
    app, today = context.app(), today_at(context.now_ms)
    every = _all_subscriptions(context.parts.subscriptions, shown_project(context, app), _query_from(context))
    return sheet(context, sheet_name(context, app, "subscriptions", Window(today, today)), _TITLES, map(_cells, every))


def _all_subscriptions(
    subscriptions: SubscriptionReader, project: str, query: SubscriptionQuery
) -> Iterator[CurrentSubscription]:
    while found := subscriptions.page(project, query, PIECE_ROWS):
        yield from found
        query = replace(query, after=position_of(found[-1], query.order))


def _cells(each: CurrentSubscription) -> tuple[str | int | None, ...]:
    return (
        each.id,
        each.status,
        each.mrr,
        each.currency,
        "yes" if each.is_counted else "no",
        each.customer,
        each.plan,
        instant(each.at // 1000),
    )


def _query_from(context: MemberContext) -> SubscriptionQuery:
    order = context.asked("sort") or SubscriptionOrder.UPDATED
    if order not in set(SubscriptionOrder):
        raise ParameterProblem(f"subscriptions can be sorted by {listed(list(SubscriptionOrder))}", "sort")
    status, named = context.asked("status"), context.asked("named").strip()
    return SubscriptionQuery(SubscriptionOrder(order), status=status or None, named=named or None)


def _cursor_of(last: CurrentSubscription, order: SubscriptionOrder) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position_of(last, order))).decode()


def _position(text: str, order: SubscriptionOrder) -> SubscriptionPosition | None:
    if not text:
        return None
    try:
        return _CURSORS[order].decode(base64.urlsafe_b64decode(text))
    except ValueError:  # of both decoders
        raise ParameterProblem("this page of the list does not exist; here is the first one", "after") from None
