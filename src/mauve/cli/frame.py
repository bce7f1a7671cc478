"""What every command shares: where the data is, how to answer, how to refuse."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
import msgspec

from mauve.config import Settings, settings_from
from mauve.control.parts import ControlParts
from mauve.stores.data_directory import holder_of

P = ParamSpec("P")
R = TypeVar("R")

org_argument = click.argument("org", metavar="ORG")
org_option = click.option("--org", required=True, metavar="ORG", help="The organization's id, org_….")
app_option = click.option("--app", required=True, metavar="APP", help="The app's id, app_….")
test_option = click.option("--test", is_flag=True, help="On the app's test plane.")


class MistakeError(Exception):
    """Something the person at the keyboard can put right. The message is one sentence."""


def on_data(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command the two options that every command takes: `--data` and `--json`."""
    data = click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The data directory (MAUVE_DATA; default ./mauve-data).",
    )
    as_json = click.option(
        "--json", "as_json", is_flag=True, help="Answer with one JSON value on stdout and nothing else."
    )
    return data(as_json(command))


def settings_at(data: Path | None) -> Settings:
    if data == Path():
        raise MistakeError("--data is empty: name a directory")
    settings = settings_from()
    return settings if data is None else dataclasses.replace(settings, data=data)


@contextmanager
def existing(data: Path | None) -> Iterator[ControlParts]:
    """Open the parts on a data directory that must be there already."""
    from mauve.wiring.paths import has_data  # noqa: PLC0415 - slow to import

    settings = settings_at(data)
    if not has_data(settings):
        raise MistakeError(f"there is no data in {settings.data}: check --data, or begin with 'mauve serve'")
    with opened(settings) as parts:
        yield parts


@contextmanager
def opened(settings: Settings) -> Iterator[ControlParts]:
    """Open the parts; a new data directory is made."""
    from mauve.wiring.bootstrap import prepare  # noqa: PLC0415 - slow to import
    from mauve.wiring.control import control_parts  # noqa: PLC0415 - slow to import

    prepare(settings)
    with control_parts(settings) as parts:
        parts.publisher.refill_if_lost()
        yield parts


def base_url(data: Path | None) -> str:
    """Return the address that links should start with: the running server's, or what it would be."""
    settings = settings_at(data)
    holder = holder_of(settings.data)
    if holder is not None:
        return holder.public_url.rstrip("/")
    return (settings.public_url or f"http://{settings.host}:{settings.port}").rstrip("/")


def answer(value: Any, *, as_json: bool, text: str) -> None:  # noqa: ANN401 - whatever msgspec can encode
    """Answer once: for a program or for a person."""
    click.echo(msgspec.json.encode(value).decode() if as_json else text)


def printable(text: str) -> str:
    """Return the text so that it can do nothing to a terminal: what cannot be printed is written as an escape."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def table(headings: Sequence[str], rows: Sequence[Sequence[object]], if_empty: str) -> str:
    """Return aligned columns."""
    if not rows:
        return if_empty
    lines = [list(headings), *[[printable(str(cell)) for cell in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
