"""Shared by the commands: options, settings, and opening the data directory."""

import dataclasses
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

import click

from mauve.config import Settings, settings_from
from mauve.stores.data_directory import holder_of
from mauve.urls import http_url

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from mauve.control import ControlParts
    from mauve.core.app import App

org_argument = click.argument("org", metavar="ORG")
org_option = click.option("--org", metavar="ORG", help="The organization's id, org_…; optional if there is only one.")
app_option = click.option("--app", required=True, metavar="APP", help="The app's id, app_….")
yes_option = click.option("--yes", is_flag=True, help="Skip the confirmation.")
test_option = click.option("--test", is_flag=True, help="Use the app's test environment.")


class UsageError(Exception):
    """A mistake that the user can correct. The message is one sentence."""


def data_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options of every command, `--data` and `--json`, and configure logging."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        from mauve.logs import configure_logs  # noqa: PLC0415 - slow to import

        configure_logs("auto", process="command")  # on standard error: only the result goes to standard output
        return command(*args, **kwargs)

    return quiet_options(run)


def quiet_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the same options to a command that never logs."""
    data = click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The data directory (MAUVE_DATA; default ./mauve-data).",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON value on stdout and nothing else.")
    return data(as_json(command))


def settings_for(data: Path | None) -> Settings:
    if data == Path():
        raise UsageError("--data is empty: name a directory")
    settings = settings_from()
    return settings if data is None else dataclasses.replace(settings, data=data)


@contextmanager
def open_existing(data: Path | None) -> Iterator["ControlParts"]:
    """Open the control plane's parts on a data directory that must already exist."""
    from mauve.wiring.paths import has_data  # noqa: PLC0415 - slow to import

    settings = settings_for(data)
    if not has_data(settings):
        raise UsageError(f"there is no data in {settings.data.absolute()}: check --data, or start with 'mauve serve'")
    with open_or_create(settings) as parts:
        yield parts


@contextmanager
def open_or_create(settings: Settings) -> Iterator["ControlParts"]:
    """Open the control plane's parts, and create the data directory if it is missing."""
    from mauve.wiring.bootstrap import control_parts, prepare  # noqa: PLC0415 - slow to import

    prepare(settings, needs_every_server=False)  # Only the catalog is needed.
    with control_parts(settings) as parts:
        yield parts


def stop_on_sigterm() -> None:
    """Treat SIGTERM like Ctrl-C, so that incomplete output is removed."""

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


def active_app(parts: "ControlParts", app_id: str) -> "App":
    """Return an app that may be written to; refuse one that is archived or whose organization is suspended."""
    from mauve.control import operator  # noqa: PLC0415 - slow to import
    from mauve.core.organization import Standing  # noqa: PLC0415

    app = operator.find_app(parts, app_id)
    if app.is_archived:
        raise UsageError(f"the app {app_id} is archived: restore it with 'mauve app restore {app_id}'")
    organization = operator.find_organization(parts, app.org_id)
    if organization.standing_at(parts.clock.now_ms()) is Standing.SUSPENDED:
        raise UsageError(f"ingest of {app.org_id} is suspended: resume it with 'mauve org resume {app.org_id}'")
    return app


def project_of(app: "App", *, test: bool) -> str:
    project = app.test_public_id if test else app.public_id
    if project is None:
        raise UsageError(
            "the app has no test environment yet: save a test secret with 'mauve webhooks secret --test', or choose "
            "'Prepare the test environment' on its Webhooks page"
        )
    return project


def confirm(question: str, *, yes: bool) -> None:
    """Ask before a change that is hard to undo, unless --yes was given."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("this command deletes data and asks for confirmation: add --yes to run it without a terminal")
    click.confirm(question, abort=True, err=True)


def base_url(data: Path | None) -> str:
    """Return the address for links: the running server's, or the one it would have."""
    settings = settings_for(data)
    holder = holder_of(settings.data)
    if holder is not None:
        return holder.public_url.rstrip("/")
    return (settings.public_url or http_url(settings.host, settings.port)).rstrip("/")
