"""Describe a rule in words, for pages."""

from mauve.alerts.figures import amount_text
from mauve.alerts.terms import (
    METRIC_NAMES,
    Change,
    DeliveriesFailing,
    Direction,
    NoEvents,
    Terms,
    Threshold,
)
from mauve.core.text import count, counted

_CHANGES = {Direction.EITHER: "changes", Direction.UP: "rises", Direction.DOWN: "falls"}


def describe(terms: Terms) -> str:
    match terms:
        case NoEvents():
            return f"No events for {counted(terms.hours, 'hour')}"
        case DeliveriesFailing():
            return f"A biller's deliveries fail verification, within {counted(terms.hours, 'hour')}"
        case Threshold():
            limit = terms.value * 10 if terms.metric == "dau" else terms.value
            value = amount_text(terms.metric, limit, terms.currency)
            return f"{_name(terms)} is {terms.side} {value}"
        case Change():
            return f"{_name(terms)} {_CHANGES[terms.direction]} by more than {count(terms.percent)}\N{NO-BREAK SPACE}%"


def _name(terms: Threshold | Change) -> str:
    name = METRIC_NAMES[terms.metric]
    in_currency = "" if terms.currency is None else f" in {terms.currency.upper()}"
    is_current = terms.metric == "mrr" and isinstance(terms, Threshold)
    over = "" if is_current else f" over {terms.days} days"
    return f"{name[0].upper()}{name[1:]}{in_currency}{over}"
