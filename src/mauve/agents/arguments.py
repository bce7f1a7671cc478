"""The arguments of the tools as types, which are also their JSON schemas."""

from datetime import date
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from mauve.metrics.questions import NAME_CHARACTERS_MAX

APPS_MAX: Final = 20  # read by one call
ROWS_MAX: Final = 400
_ID_CHARACTERS_MAX: Final = 64

_Project = Annotated[str, Meta(max_length=_ID_CHARACTERS_MAX)]
_Projects = Annotated[list[_Project], Meta(min_length=1, max_length=APPS_MAX)]
_EventName = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]
MetricName = Literal[
    "mau",
    "dau",
    "signups",
    "signups_daily",
    "revenue",
    "mrr",
    "mrr_history",
    "volume",
    "event_names",
    "event_count",
    "event_series",
]
Comparable = Literal["mau", "dau", "signups", "revenue", "volume", "event_count"]


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None at all."""


class AppsArguments(Arguments, frozen=True):
    """Which apps to list."""

    after: _Project | None = None


class FanOutArguments(Arguments, frozen=True, kw_only=True):
    """Which apps to read, and what that may cost."""

    apps: _Projects | None = None
    after: _Project | None = None
    spend: Annotated[int, Meta(ge=1)] | None = None


class OverviewArguments(FanOutArguments, frozen=True):
    """Which apps and how many days."""

    days: Annotated[int, Meta(ge=2, le=365)] = 30  # with today, which is left out


class ReadArguments(Arguments, frozen=True):
    """One question, as the API asks it."""

    project: _Project
    metric: MetricName
    date_from: date | None = None
    date_to: date | None = None
    name: _EventName | None = None
    rows: Annotated[int, Meta(ge=1, le=ROWS_MAX)] = 100


class CompareArguments(FanOutArguments, frozen=True):
    """One metric in two periods."""

    metric: Comparable
    date_from: date | None = None
    date_to: date | None = None
    before_from: date | None = None
    before_to: date | None = None
    name: _EventName | None = None


class ExplainArguments(FanOutArguments, frozen=True):
    """Which apps in which period."""

    date_from: date | None = None
    date_to: date | None = None


def schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    """Return the JSON schema without what agents do not need: titles, texts, and null for what may be left out."""
    _, components = msgspec.json.schema_components([arguments])
    schema = components[arguments.__name__]
    properties = {name: _plain(each) for name, each in schema["properties"].items()}
    required = {"required": schema["required"]} if schema["required"] else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in schema.items() if name not in {"anyOf", "maxLength"} and value is not None}
    for choice in schema.get("anyOf", ()):
        if choice != {"type": "null"}:
            kept |= _plain(choice)
    if isinstance(kept.get("items"), dict):
        kept["items"] = _plain(kept["items"])
    return kept
