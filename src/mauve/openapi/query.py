"""The operation of the query plane."""

from collections.abc import Mapping
from datetime import date
from typing import Final

from mauve.core.credential import Scope
from mauve.core.problems import Code, Problem, unauthorized, unknown_project
from mauve.core.window import Window
from mauve.metrics.answers import Row, body_of
from mauve.metrics.questions import NAME_CHARACTERS_MAX, Question
from mauve.metrics.registry import METRICS, NAMES_MAX, metric_named
from mauve.openapi.notes import example_id
from mauve.openapi.operation import Answer, Operation, Parameter, data_refusal, other_method, ref
from mauve.openapi.security import SERVER_KEY, control_token
from mauve.query.ask import Freshness, cannot_be_read
from mauve.web.messages import JSON, Reply

TAG: Final = "Metrics"
_WINDOW: Final = Window(date(2026, 11, 1), date(2026, 11, 30))
_RESET_AT: Final = 1_796_083_200_000

MEANINGS: Final[Mapping[str, str]] = {
    "mau": "Different users in the window, by any event.",
    "dau": "Different users of each day, by behavioural events.",
    "signups": "Different users who signed up in the window.",
    "signups_daily": "Different users who signed up, by day.",
    "revenue": "What was earned, by day and currency, in minor units.",
    "mrr": "The monthly recurring revenue of now, by currency. The window is ignored.",
    "mrr_history": "The monthly recurring revenue at the end of each day, by currency; for today, as it is now.",
    "volume": "What was processed for others, by day and currency, in minor units.",
    "event_names": (
        f"Which events occurred, and how often: the most frequent first, at most {NAMES_MAX:,} of them. If there "
        "are more, the header `x-service-truncated` says how many rows are given."
    ),
    "event_count": "How often the event `name` occurred in the window.",
    "event_series": "How often the event `name` occurred, by day.",
}
_ROWS: Final[Mapping[str, list[Row]]] = {
    "mau": [(1204,)],
    "dau": [("2026-11-13", 311), ("2026-11-14", 298)],
    "signups": [(87,)],
    "signups_daily": [("2026-11-13", 5), ("2026-11-14", 3)],
    "revenue": [("2026-11-14", "eur", 129900), ("2026-11-14", "usd", 4900)],
    "mrr": [("eur", 459700), ("usd", 12000)],
    "mrr_history": [("2026-11-13", "eur", 457700), ("2026-11-14", "eur", 459700)],
    "volume": [("2026-11-14", "eur", 880000)],
    "event_names": [("report_opened", 9120), ("user_signup", 87)],
    "event_count": [("report_opened", 9120)],
    "event_series": [("2026-11-13", 640), ("2026-11-14", 702)],
}


def _day(name: str, text: str, example: date) -> Parameter:
    return Parameter(name, "query", text, {"type": "string", "format": "date"}, example.isoformat())


def _answer(metric: str) -> Answer:
    return Answer(metric, MEANINGS[metric], _reply(metric), ref("MetricResult"))


def _reply(metric: str, freshness: Freshness = Freshness.MISS, **more: str) -> Reply:
    question = Question(example_id("proj"), metric_named(metric), _WINDOW, "report_opened")
    headers = {**JSON, "cache-control": "no-store", "x-cache": freshness.value}
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    return Reply(200, body_of(question, _ROWS[metric]).bytes, headers)


_METRIC_LIST: Final = "\n".join(f"- `{name}`: {meaning}" for name, meaning in MEANINGS.items())
_RAW_SCANS: Final = ", ".join(f"`{metric.name}`" for metric in METRICS.values() if metric.is_raw_scan)

ROUTES: Final = (
    Operation(
        method="GET",
        path="/v1/metrics/{metric}",
        name="readMetric",
        tag=TAG,
        summary="Read a metric",
        text=(
            "The same numbers as the dashboard shows. Money is exact; distinct counts are within about 0.5 %. Days and "
            "currencies without anything are left out.\n\nAn answer is kept for 5 minutes and given again: a read "
            "right after a write pins the number from before it.\n\n"
            f"{_METRIC_LIST}\n\nReads by control tokens spend the organization's allowance of the billing period, and "
            f"{_RAW_SCANS} a second, smaller one. An answer from the cache spends nothing."
        ),
        security=(SERVER_KEY, control_token(Scope.METRICS_READ)),
        parameters=(
            Parameter(
                "metric", "path", "What to read.", {"type": "string", "enum": list(METRICS)}, "dau", required=True
            ),
            _day(
                "date_from",
                "First day, UTC, included; 29 days before today if absent. `mrr` ignores it.",
                _WINDOW.first,
            ),
            _day("date_to", "Last day, UTC, included; today if absent.", _WINDOW.last),
            Parameter(
                "name",
                "query",
                "The event to count. Required by `event_count` and `event_series`; ignored by the others.",
                {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX},
                "report_opened",
            ),
            Parameter(
                "project",
                "query",
                "The app's `public_id`. Required with a control token; ignored with a server key, which has its own.",
                {"type": "string"},
                example_id("proj"),
            ),
        ),
        answers=(
            *(_answer(metric) for metric in METRICS),
            Answer(
                "dau_stale",
                "The last known answer, given because reading anew failed.",
                _reply("dau", Freshness.STALE, x_cache_age="412"),
                ref("MetricResult"),
            ),
            Answer(
                "event_names_truncated",
                f"There are more than {NAMES_MAX:,} names: the most frequent of them.",
                _reply("event_names", x_service_truncated=str(NAMES_MAX)),
                ref("MetricResult"),
            ),
            data_refusal(
                "A parameter is missing, given twice or no date, or the window ends before it begins.",
                Problem(Code.MALFORMED, "name is required: give the event to count"),
            ),
            data_refusal("The credential is missing, unknown or revoked.", unauthorized()),
            data_refusal(
                "The key is a publishable one.",
                Problem(Code.FORBIDDEN, "a publishable key reads nothing: use a server key or a control token"),
            ),
            data_refusal(
                "The token does not carry `metrics:read`.",
                Problem(
                    Code.INSUFFICIENT_SCOPE, "this token does not carry the scope metrics:read: mint one that does"
                ),
            ),
            data_refusal(
                "There is no such metric.",
                Problem(Code.NOT_FOUND, f"unknown metric: ask for one of {', '.join(METRICS)}"),
                "unknown_metric",
            ),
            data_refusal(
                "The token's organization has no such project in its plane.", unknown_project(), "unknown_project"
            ),
            other_method("GET"),
            data_refusal(
                "The organization has made all its reads of this minute.",
                Problem(
                    Code.RATE_LIMITED,
                    "this organization has made all its reads of this minute: retry after 7 s",
                    retry_after_s=7,
                ),
            ),
            data_refusal(
                "What control tokens may read in this billing period is spent.",
                Problem(Code.QUERIES_SPENT, "the queries of control tokens are spent", reset_at=_RESET_AT),
            ),
            data_refusal(
                f"The raw scans of this billing period are spent: stop asking for {_RAW_SCANS}.",
                Problem(Code.RAW_SCANS_SPENT, "the raw scans of control tokens are spent", reset_at=_RESET_AT),
            ),
            data_refusal("The numbers cannot be read now, and there is no last known answer.", cannot_be_read()),
        ),
    ),
)
