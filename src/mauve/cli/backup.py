"""`mauve backup` and `mauve restore`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click

from mauve.cli.frame import MistakeError, answer, on_data, settings_at
from mauve.cli.progress import NoProgress, RewrittenLine, StageLines
from mauve.maintenance.disk_space import in_words
from mauve.maintenance.progress import Progress

_file_argument = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


@click.command()
@_file_argument
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@on_data
def backup(*, file: Path, force: bool, data: Path | None, as_json: bool) -> None:
    """Write everything as it is now into one file, while the service goes on or while it is stopped.

    The file holds all that was acknowledged when the command began, and the master key, if that is in the data.
    """
    from mauve.core.clock import SystemClock  # noqa: PLC0415
    from mauve.maintenance.backup import back_up, check_target  # noqa: PLC0415
    from mauve.server.admin_client import standstill  # noqa: PLC0415
    from mauve.wiring.maintenance import backup_sources  # noqa: PLC0415 - slow to import
    from mauve.wiring.paths import has_data  # noqa: PLC0415 - slow to import

    settings = settings_at(data)
    if not has_data(settings):
        raise MistakeError(f"there is no data in {settings.data}: check --data")
    check_target(file, may_replace=force)
    originals = backup_sources(settings, lambda: standstill(settings))
    with _watched(as_json=as_json) as progress:
        made = back_up(originals, file, SystemClock().now_ms(), version("mauve"), progress)
    text = f"{made.file}: {in_words(made.bytes)}, {made.events} events; {_about_key(has_key=made.has_master_key)}"
    answer(made, as_json=as_json, text=text)


def _about_key(*, has_key: bool) -> str:
    if has_key:
        return "with the master key, which opens your webhook secrets: keep it safe"
    return "without the master key, which is in MAUVE_MASTER_KEY: keep that elsewhere"


@click.command()
@_file_argument
@on_data
def restore(*, file: Path, data: Path | None, as_json: bool) -> None:
    """Make a data directory of a backup. It must be empty, or not there yet."""
    from mauve.maintenance.restore import restore as restored_from  # noqa: PLC0415
    from mauve.wiring.maintenance import builders  # noqa: PLC0415 - slow to import

    settings = settings_at(data)
    with _watched(as_json=as_json) as progress:
        restored = restored_from(file, settings.data, builders(), progress)
    made_at = datetime.fromtimestamp(restored.created_at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    key = "" if restored.has_master_key else "; set MAUVE_MASTER_KEY before you start it: the key is not in the backup"
    answer(restored, as_json=as_json, text=f"{restored.data}: as of {made_at}, {restored.events} events{key}")


@contextmanager
def _watched(*, as_json: bool) -> Iterator[Progress]:
    if as_json:
        yield NoProgress()
    elif not sys.stderr.isatty():
        yield StageLines()
    else:
        line = RewrittenLine()
        try:
            yield line
        finally:
            line.end()
