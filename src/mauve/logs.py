"""Logging to standard error: readable on a terminal, JSON otherwise, and never a credential."""

import io
import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

from mauve.core.secret import masked_text


def configure_logs(style: str, **context: object) -> None:
    """Set up logging for this process; every line includes the context."""
    on_terminal = sys.stderr.isatty() if style == "auto" else style == "console"
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    renderer = console if on_terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _without_credentials,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(**context)
    # The event loop and the server log through the standard library; only their errors matter.
    logging.basicConfig(level=logging.ERROR, handlers=[_ForwardingHandler()])


class _ForwardingHandler(logging.Handler):
    """Forwards records of libraries to our log: one line each, in its style and without credentials."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        log.error("library_failed", library=record.name, text=record.getMessage(), exc_info=record.exc_info)


class _StandardError(io.TextIOBase):
    """The current standard error: the one at the start may have been closed since.

    Ignore write errors: it may be a file on a full or broken disk, and logging that must not fail again.
    """

    def write(self, text: str) -> int:
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def _without_credentials(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401 - structlog's signature
    return {key: masked_text(value) if isinstance(value, str) else value for key, value in event.items()}
