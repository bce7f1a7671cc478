"""`mauve import`: history from files, the list of imports, and undoing one."""

import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from mauve.cli.options import (
    UsageError,
    active_app,
    app_option,
    confirm,
    data_options,
    open_existing,
    project_of,
    settings_for,
    test_option,
    yes_option,
)
from mauve.cli.output import counted, print_result, printable, shown_progress, table, utc_time
from mauve.control import operator
from mauve.core.app import Environment

if TYPE_CHECKING:
    from mauve.control import ControlParts
    from mauve.imports.chunks import FileSummary
    from mauve.imports.run import ImportParts, Source
    from mauve.maintenance import Progress
    from mauve.maintenance.retention import Forgotten
    from mauve.stores.imports import Import

_FORMATS: Final = ("events", "csv", "stripe", "polar", "umami", "posthog", "plausible")
_TIMES: Final = ("iso", "utc", "s", "ms")
_LISTED_MAX: Final = 1_000
_NAMES_SHOWN_MAX: Final = 20


class _Commands(click.Group):
    """A group with a default command: `mauve import --app …` imports files."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["file", *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the options of the default command."""
        self.commands["file"].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(
    "import",
    cls=_Commands,
    no_args_is_help=False,
    options_metavar="",
    subcommand_metavar="--app APP --format FORMAT [OPTIONS] FILE…",
)
def import_() -> None:
    """Import history from files, list imports, or undo one."""


@import_.command("file", hidden=True)
@app_option
@test_option
@click.option("--format", "format_", type=click.Choice(_FORMATS), required=True, help="The format of the files.")
@click.option("--map", "columns", metavar="FIELD=COLUMN,…", help="For csv: name, user, id, at and props.NAME.")
@click.option(
    "--times", type=click.Choice(_TIMES), default="iso", show_default=True, help="For csv: the format of times."
)
@click.option("--rename", "renames", multiple=True, metavar="OLD=NEW", help="Rename events; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Read and summarize the files; store nothing.")
@click.option(
    "--max-bad", type=click.IntRange(0), default=0, show_default=True, help="Maximum number of bad rows to skip."
)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@data_options
def import_files(
    *,
    app: str,
    test: bool,
    format_: str,
    columns: str | None,
    times: str,
    renames: Sequence[str],
    dry_run: bool,
    max_bad: int,
    files: Sequence[Path],
    data: Path | None,
    as_json: bool,
) -> None:
    """Import files. Repeat the command to resume an interrupted import; each file is imported only once."""
    from mauve.imports.items import Target  # noqa: PLC0415 - slow to import
    from mauve.imports.run import Source, check_bad_rows, summarize_file  # noqa: PLC0415
    from mauve.wiring.maintenance import last_forgotten  # noqa: PLC0415

    with open_existing(data) as control, shown_progress(as_json=as_json) as progress:
        found = active_app(control, app)
        target = Target(
            project=project_of(found, test=test),
            org_id=found.org_id,
            environment=Environment.TEST if test else Environment.LIVE,
            now_ms=control.clock.now_ms(),
            columns=_pairs(columns.split(",") if columns else (), "--map"),
            times=times,
            renames=_pairs(renames, "--rename"),
        )
        forgotten = last_forgotten(control)
        sources = [Source(path, format_, target, _login()) for path in files]
        if dry_run:
            summaries = [summarize_file(source, progress) for source in sources]
            results: list[dict[str, Any]] = [_summary_view(each) for each in summaries]
            texts = [_summary_text(path, each) for path, each in zip(files, summaries, strict=True)]
            print_result(results, as_json=as_json, text="\n".join([*texts, "dry run: nothing was stored"]))
            _warn_of_forgotten_ids(forgotten, [each.days[0] for each in summaries if each.days and each.events])
            check_bad_rows(zip(files, summaries, strict=True), max_bad)
            return
        with _parts(data, control, app, progress) as parts:
            _import_all(sources, parts, max_bad, forgotten, as_json=as_json)


def _import_all(
    sources: "Sequence[Source]", parts: "ImportParts", max_bad: int, forgotten: "Forgotten | None", *, as_json: bool
) -> None:
    """Import the files one at a time. If one fails, still report those before it."""
    from mauve.imports.run import BadRowsError, import_file  # noqa: PLC0415 - slow to import

    done: list[Import] = []
    try:
        for source in sources:
            done.append(import_file(source, parts, max_bad))  # noqa: PERF401 - kept if the next one fails
    except BadRowsError as error:
        _show_bad(error.summary)
        raise
    finally:
        if done:
            print_result([_view(each) for each in done], as_json=as_json, text="\n".join(map(_done_text, done)))
            _warn_of_forgotten_ids(forgotten, [each.first_day for each in done if each.counts.events])


@import_.command("list")
@app_option
@data_options
def list_imports(*, app: str, data: Path | None, as_json: bool) -> None:
    """List the imports of an app, latest first."""
    from mauve.wiring.maintenance import open_import_ledger  # noqa: PLC0415 - slow to import

    with open_existing(data) as control:
        found = operator.find_app(control, app)
        projects = [each for each in (found.public_id, found.test_public_id) if each is not None]
        with open_import_ledger(settings_for(data)) as ledger:
            imports = ledger.latest(projects, _LISTED_MAX)
    headings = ("import", "state", "format", "file", "rows", "events", "payments", "versions", "days", "began", "by")
    rows = [_list_row(each) for each in imports]
    text = table(headings, rows, if_empty="this app has no imports")
    print_result([_view(each) for each in imports], as_json=as_json, text=text)


@import_.command("undo")
@yes_option
@click.argument("name", metavar="IMPORT")
@data_options
def undo_import(*, yes: bool, name: str, data: Path | None, as_json: bool) -> None:
    """Remove everything that an import, such as import-3, stored. Metrics are then as if it had never run."""
    from mauve.imports.run import undo  # noqa: PLC0415 - slow to import
    from mauve.stores.imports import number_in  # noqa: PLC0415

    number = number_in(name)
    if number is None:
        raise UsageError(f"{printable(name)!r} is not an import: choose one from 'mauve import list --app APP'")
    confirm(f"Remove everything that import-{number} stored?", yes=yes)
    with (
        open_existing(data) as control,
        shown_progress(as_json=as_json, format_total=str) as progress,
        _parts(data, control, None, progress) as parts,
    ):
        done = undo(number, parts)
    print_result(_view(done), as_json=as_json, text=f"{done.name} of {printable(done.file)} was undone")


@contextmanager
def _parts(
    data: Path | None,
    control: "ControlParts",
    app_id: str | None,
    progress: "Progress",
) -> "Iterator[ImportParts]":
    from mauve.imports.run import ImportParts  # noqa: PLC0415 - slow to import
    from mauve.server.admin_client import import_warehouse  # noqa: PLC0415
    from mauve.wiring.maintenance import open_import_ledger  # noqa: PLC0415

    def check() -> None:
        if app_id is not None:
            active_app(control, app_id)

    settings = settings_for(data)
    with open_import_ledger(settings) as ledger, import_warehouse(settings) as warehouse:
        yield ImportParts(ledger, warehouse, control.clock, check, progress)


def _pairs(texts: Sequence[str], option: str) -> Mapping[str, str]:
    split = [text.partition("=") for text in texts]
    if any(not left or not right for left, _, right in split):
        raise UsageError(f"{option} takes pairs such as name=event_name: check for a missing name")
    return {left.strip(): right.strip() for left, _, right in split}


def _login() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container
        return str(os.getuid())


def _view(done: "Import") -> dict[str, Any]:
    kept = msgspec.to_builtins(done)
    return {"import": done.name, **{name: kept[name] for name in kept if name not in {"number", "options"}}}


def _summary_view(found: "FileSummary") -> dict[str, Any]:
    first, last = found.days or (None, None)
    kept: dict[str, Any] = msgspec.to_builtins(found)
    return {**{name: kept[name] for name in kept if not name.endswith("_ms")}, "first_day": first, "last_day": last}


def _summary_text(path: Path, found: "FileSummary") -> str:
    first, last = found.days or ("nothing", "nothing")
    made = [
        counted(found.events.total(), "event"),
        counted(found.payments, "payment"),
        counted(found.subscriptions, "subscription version"),
    ]
    made += [counted(found.figures, "figure")] if found.figures else []
    lines = [f"{printable(path.name)}: {counted(found.rows, 'row')}, {', '.join(made)}, from {first} to {last}"]
    lines += [f"  {printable(name)}: {count}" for name, count in found.events.most_common(_NAMES_SHOWN_MAX)]
    for name, totals in (("revenue", found.revenue), ("volume", found.volume)):
        lines += [f"  {name}: {total} minor units of {currency}" for currency, total in sorted(totals.items())]
    lines += [f"  {counted(found.skipped, 'row')} with nothing to import"] if found.skipped else []
    return "\n".join([*lines, *_bad_lines(found)])


def _bad_lines(found: "FileSummary") -> list[str]:
    if not found.bad:
        return []
    return [f"  {counted(found.bad, 'bad row')}", *(f"  row {row}: {reason}" for row, reason in found.first_bad)]


def _show_bad(found: "FileSummary") -> None:
    for line in _bad_lines(found):
        click.echo(line, err=True)


def _warn_of_forgotten_ids(forgotten: "Forgotten | None", first_days: Sequence[str]) -> None:
    """Warn about events of days whose ids have been removed."""
    if forgotten is not None and any(day < forgotten.before for day in first_days):
        click.echo(
            f"raw event retention has removed the ids of events before {forgotten.before}: events of those days that "
            "were already sent or imported count again",
            err=True,
        )


def _done_text(done: "Import") -> str:
    counts = done.counts
    parts = [
        f"{counted(counts.events, 'event')} ({counts.repeats} already known)",
        f"{counted(counts.payments, 'payment')} ({counts.payments_known} already known)",
        counted(counts.subscriptions, "subscription version"),
    ]
    parts += [counted(counts.figures, "figure")] if counts.figures else []
    text = f"{done.name}: {counted(done.rows, 'row')} of {printable(done.file)}: {', '.join(parts)}"
    lines = [text] if not counts.bad else [text, f"{counted(counts.bad, 'bad row')} skipped"]
    if done.is_approximate:
        lines.append("past MRR is approximate: it is reconstructed from today's prices")
    return "\n".join(lines)


def _list_row(each: "Import") -> tuple[object, ...]:
    counts, days = each.counts, f"{each.first_day} to {each.last_day}"
    format_ = f"{each.format} (approximate)" if each.is_approximate else each.format
    numbers = (each.rows, counts.events, counts.payments, counts.subscriptions)
    return (each.name, each.state, format_, each.file, *numbers, days, utc_time(each.began_at), each.who)
