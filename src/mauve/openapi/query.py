"""The operation of the query plane."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final

from mauve.access.read_limits import problem_from
from mauve.access.tokens import insufficient_scope
from mauve.control.bodies import PROJECT_ID_EXAMPLE
from mauve.core.credential import Scope
from mauve.core.problems import unauthorized, unknown_project
from mauve.core.window import Window, period_ends_at
from mauve.metrics.answers import Row, body_of
from mauve.metrics.questions import NAME_CHARACTERS_MAX, Question, question_from
from mauve.metrics.registry import METRICS, NAMES_MAX, metric_named
from mauve.openapi.operation import (
    SERVER_KEY,
    Operation,
    Parameter,
    Response,
    control_token,
    data_error,
    method_not_allowed,
    problem_raised_by,
    ref,
)
from mauve.query.answer_cache import Answer, Freshness
from mauve.query.ask import cannot_be_read
from mauve.query.plane import reply_from, server_key_required
from mauve.stores.limits.read_meter import Throttle, Throttled

TAG: Final = "Metrics"
_WINDOW: Final = Window(date(2026, 11, 1), date(2026, 11, 30))
_NOW_MS: Final = int(datetime(2026, 11, 14, 9, 30, tzinfo=UTC).timestamp()) * 1000
_RESET_AT: Final = period_ends_at(_NOW_MS)

MEANINGS: Final[Mapping[str, str]] = {
    "mau": "Distinct users in the window, by any event but payments; signups count.",
    "dau": "Distinct users per day, by behavioral events: a `user_signup` alone does not make a user active.",
    "signups": "Distinct users who signed up in the window.",
    "signups_daily": "Distinct users who signed up, per day.",
    "revenue": "Earned money per day and currency, in minor units.",
    "mrr": "Current monthly recurring revenue per currency. Ignores the window.",
    "mrr_history": "Monthly recurring revenue per currency at the end of each day; for today, the current value.",
    "volume": "Money processed for others, per day and currency, in minor units.",
    "event_names": (
        f"Names of the events in the window and how often each occurred, most frequent first, at most {NAMES_MAX:,}. "
        "If there are more, the header `x-service-truncated` gives the number of rows returned."
    ),
    "event_count": "How often the event `name` occurred in the window.",
    "event_series": "How often the event `name` occurred, per day.",
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


def _day(name: str, description: str, example: date) -> Parameter:
    return Parameter(name, "query", description, {"type": "string", "format": "date"}, example.isoformat())


def _result(metric: str, when: str, answer: Answer, name: str | None = None) -> Response:
    return Response(name or metric, when, reply_from(answer), ref("MetricResult"))


def _answer(
    metric: str, freshness: Freshness = Freshness.MISS, age_s: int | None = None, cut_at: int | None = None
) -> Answer:
    question = Question(PROJECT_ID_EXAMPLE, metric_named(metric), _WINDOW, "report_opened")
    return Answer(body_of(question, _ROWS[metric]).bytes, freshness, _NOW_MS, age_s, cut_at)


_METRIC_LIST: Final = "\n".join(f"- `{name}`: {meaning}" for name, meaning in MEANINGS.items())
_RAW_SCANS: Final = ", ".join(f"`{metric.name}`" for metric in METRICS.values() if metric.is_raw_scan)
_PARAMETERS: Final = (
    Parameter("metric", "path", "The metric to read.", {"type": "string", "enum": list(METRICS)}, "dau", required=True),
    _day("date_from", "First day (UTC), inclusive. Defaults to 29 days before today. Ignored by `mrr`.", _WINDOW.first),
    _day("date_to", "Last day (UTC), inclusive. Defaults to today.", _WINDOW.last),
    Parameter(
        "name",
        "query",
        "The event to count. Required for `event_count` and `event_series`; ignored otherwise.",
        {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX},
        "report_opened",
    ),
    Parameter(
        "project",
        "query",
        "The app's `public_id`. Required with a control token; ignored with a server key, which implies its project.",
        {"type": "string"},
        PROJECT_ID_EXAMPLE,
    ),
)
_ERRORS: Final = (
    data_error(
        "A parameter is missing, repeated or not a date, or the window ends before it begins.",
        problem_raised_by(question_from, metric_named("event_count"), PROJECT_ID_EXAMPLE, {}, _WINDOW.last),
    ),
    data_error("The credential is missing, unknown or revoked.", unauthorized()),
    data_error("The key is a publishable key.", server_key_required()),
    data_error(f"The token does not carry the scope `{Scope.METRICS_READ}`.", insufficient_scope(Scope.METRICS_READ)),
    data_error("The metric does not exist.", problem_raised_by(metric_named, "unknown"), "unknown_metric"),
    data_error(
        "The token's organization has no such project in the token's environment.",
        unknown_project(),
        "unknown_project",
    ),
    method_not_allowed("GET"),
    data_error(
        "The organization has reached its limit of reads per minute.",
        problem_from(Throttled(Throttle.RATE_LIMIT, _NOW_MS + 7000, _NOW_MS)),
    ),
    data_error(
        "The query allowance of control tokens for this billing period is spent.",
        problem_from(Throttled(Throttle.QUERIES, _RESET_AT, _NOW_MS)),
    ),
    data_error(
        f"The raw-scan allowance for this billing period is spent: stop requesting {_RAW_SCANS}.",
        problem_from(Throttled(Throttle.RAW_SCANS, _RESET_AT, _NOW_MS)),
    ),
    data_error("The metric cannot be read now, and no earlier result is known.", cannot_be_read()),
)

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/metrics/{metric}",
        id="readMetric",
        tag=TAG,
        summary="Read a metric",
        description=(
            "The numbers equal those of the dashboard. Money is exact; distinct counts are within about 0.5 %. Days "
            "and currencies without data are left out.\n\nResults are cached for 5 minutes: a read right after a write "
            "pins the number from before the write. While accepted events wait longer than usual to be counted, "
            "results about events and users are not cached: `x-cache` is `uncached`.\n\n"
            f"{_METRIC_LIST}\n\nReads with a control token spend the organization's query allowance for the billing "
            f"period; {_RAW_SCANS} also spend a smaller allowance of raw scans. Cached results spend nothing.\n\n"
            "Unknown query parameters are ignored; the header `x-service-hint` names them."
        ),
        security=(SERVER_KEY, control_token(Scope.METRICS_READ)),
        parameters=_PARAMETERS,
        responses=(
            *(_result(metric, MEANINGS[metric], _answer(metric)) for metric in METRICS),
            _result(
                "dau",
                "The last known result, served because a fresh read failed.",
                _answer("dau", Freshness.STALE, age_s=412),
                "dau_stale",
            ),
            _result(
                "event_names",
                f"There are more than {NAMES_MAX:,} names: the most frequent ones.",
                _answer("event_names", cut_at=NAMES_MAX),
                "event_names_truncated",
            ),
            *_ERRORS,
        ),
    ),
)
