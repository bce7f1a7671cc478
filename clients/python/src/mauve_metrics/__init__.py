"""Send events, payments and subscriptions to Mauve, read metrics, and manage apps."""

from mauve_metrics._counts import Stats
from mauve_metrics._version import VERSION as __version__  # noqa: N811
from mauve_metrics.control import App, AppKey, AsyncControl, Control, CreatedApp, MintedKey
from mauve_metrics.errors import (
    AllowanceSpent,
    InsufficientScope,
    InvalidBody,
    MauveError,
    NotFound,
    RateLimited,
    Unauthorized,
    Unavailable,
)
from mauve_metrics.mauve import AsyncMauve, Mauve
from mauve_metrics.reading import AsyncMetrics, MetricResult, Metrics

__all__ = [
    "AllowanceSpent",
    "App",
    "AppKey",
    "AsyncControl",
    "AsyncMauve",
    "AsyncMetrics",
    "Control",
    "CreatedApp",
    "InsufficientScope",
    "InvalidBody",
    "Mauve",
    "MauveError",
    "MetricResult",
    "Metrics",
    "MintedKey",
    "NotFound",
    "RateLimited",
    "Stats",
    "Unauthorized",
    "Unavailable",
    "__version__",
]
