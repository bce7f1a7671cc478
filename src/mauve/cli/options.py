"""Shared by the commands: options, settings, and opening the data directory."""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import click

from mauve.config import Settings, settings_from
from mauve.stores.data_directory import holder_of
from mauve.urls import http_url

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from mauve.control import ControlParts

org_argument = click.argument("org", metavar="ORG")
org_option = click.option("--org", metavar="ORG", help="The organization's id, org_…; optional if there is only one.")
app_option = click.option("--app", required=True, metavar="APP", help="The app's id, app_….")
NO_TEST_ENVIRONMENT: Final = (
    "the app has no test environment yet: save a test secret with 'mauve webhooks secret --test', or choose "
    "'Prepare the test environment' on its Webhooks page"
)
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
