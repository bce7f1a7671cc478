"""`mauve webhooks replay`."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import click
import msgspec

from mauve.cli.options import (
    NO_TEST_ENVIRONMENT,
    UsageError,
    app_option,
    data_options,
    open_existing,
    settings_for,
    test_option,
)
from mauve.cli.output import print_result
from mauve.control import ControlParts, operator
from mauve.core.app import App, Environment
from mauve.core.biller import BILLER_NAMES, Provider
from mauve.core.organization import Standing

if TYPE_CHECKING:
    from mauve.ingest.webhooks.entries import Endpoint
    from mauve.ingest.webhooks.replay import Recorder, Summary
    from mauve.stores.ledger import Entry, Outcome

_BAR_BYTES_STEP: Final = 64 * 1024

provider_option = click.option(
    "--provider",
    type=click.Choice([provider.value for provider in Provider]),
    required=True,
    help=f"The biller: {' or '.join(f'{name} ({provider})' for provider, name in BILLER_NAMES.items())}.",
)


@click.command()
@app_option
@provider_option
@test_option
@click.option("--dry-run", is_flag=True, help="Read and summarize the file; record nothing.")
@click.argument("file", type=click.File("rb"))
@data_options
def replay(
    *, app: str, provider: str, test: bool, dry_run: bool, file: BinaryIO, data: Path | None, as_json: bool
) -> None:
    """Import events exported from a biller: one JSON object per line, as in a webhook delivery.

    Payments count on the day they were made, however long ago. Replaying the same file again changes nothing.
    """
    from mauve.ingest.webhooks import replay as replaying  # noqa: PLC0415 - slow to import
    from mauve.wiring.databases import open_ledger_writer  # noqa: PLC0415 - slow to import

    with open_existing(data) as parts:
        endpoint = _endpoint(parts, app, Provider(provider), Environment.TEST if test else Environment.LIVE)
        with nullcontext(replaying.DryRun()) if dry_run else open_ledger_writer(settings_for(data)) as recorder:
            lines = _with_progress(replaying.lines_in(file), file, hidden=as_json or not sys.stderr.isatty())
            checked = RecorderOfActiveApp(recorder, parts, app)
            summary = replaying.replay(lines, endpoint, checked, parts.clock.now_ms())
    text = _summary(summary, test=test, dry_run=dry_run)
    print_result(msgspec.to_builtins(summary) | {"dry_run": dry_run}, as_json=as_json, text=text)


def _endpoint(parts: ControlParts, app_id: str, provider: Provider, environment: Environment) -> "Endpoint":
    from mauve.ingest.webhooks.entries import Endpoint  # noqa: PLC0415 - slow to import

    app = _active_app(parts, app_id)
    project = app.public_id if environment is Environment.LIVE else app.test_public_id
    if project is None:
        raise UsageError(NO_TEST_ENVIRONMENT)
    organization = operator.find_organization(parts, app.org_id)
    if organization.standing_at(parts.clock.now_ms()) is Standing.SUSPENDED:
        raise UsageError(f"ingest of {app.org_id} is suspended: resume it with 'mauve org resume {app.org_id}'")
    return Endpoint(project, app.org_id, environment, provider)


def _active_app(parts: ControlParts, app_id: str) -> App:
    app = operator.find_app(parts, app_id)
    if app.is_archived:
        raise UsageError(f"the app {app_id} is archived: restore it with 'mauve app restore {app_id}'")
    return app


class RecorderOfActiveApp:
    """Stops a replay when the app is archived, because its data may be about to be deleted."""

    def __init__(self, recorder: "Recorder", parts: ControlParts, app_id: str) -> None:
        self._recorder = recorder
        self._parts = parts
        self._app_id = app_id

    def record(self, entries: "Sequence[Entry]") -> "list[list[Outcome]]":
        _active_app(self._parts, self._app_id)
        return self._recorder.record(entries)


def _with_progress(lines: Iterable[bytes], file: BinaryIO, *, hidden: bool) -> Iterator[bytes]:
    size = os.fstat(file.fileno()).st_size
    with click.progressbar(
        length=max(size, 1), label="replaying", file=sys.stderr, hidden=hidden, update_min_steps=_BAR_BYTES_STEP
    ) as bar:
        for line in lines:
            yield line
            bar.update(len(line))


def _summary(summary: "Summary", *, test: bool, dry_run: bool) -> str:
    made = f"{summary.payments} payments ({summary.payments_new} new), {summary.subscriptions} subscription versions"
    lines = [f"{summary.events} events: {made}, {summary.ignored} ignored, {summary.unusable} unusable"]
    for name, totals in (("revenue", summary.revenue), ("volume", summary.volume)):
        lines += [f"new {name}: {total} minor units of {currency}" for currency, total in sorted(totals.items())]
    if summary.conflicts:
        lines.append(f"{summary.conflicts} payments conflict with an earlier one with the same id: the first one wins")
    lines += [f"{word}: {count}" for word, count in sorted(summary.warnings.items())]
    if summary.misdirected:
        other = "without --test" if test else "with --test"
        mode = "live" if test else "test"
        lines.append(f"{summary.misdirected} {mode}-mode events were not recorded: replay them {other}")
    if summary.unusable_lines:
        lines.append(f"unusable lines begin with {', '.join(map(str, summary.unusable_lines))}")
    if dry_run:
        lines.append("dry run: nothing was recorded")
    return "\n".join(lines)
