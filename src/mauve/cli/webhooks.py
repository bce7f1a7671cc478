"""`mauve webhooks`."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from mauve.cli.options import (
    UsageError,
    active_app,
    app_option,
    data_options,
    open_existing,
    project_of,
    settings_for,
    test_option,
)
from mauve.cli.output import print_result, shown_progress, table, utc_time
from mauve.control import ControlParts, operator
from mauve.control.webhook_secrets import doubt_about, save_secret, trimmed_secret
from mauve.core.app import App, Environment
from mauve.core.biller import BILLER_NAMES, Provider

if TYPE_CHECKING:
    from mauve.ingest.webhooks.replay import Recorder, Summary
    from mauve.maintenance import Progress
    from mauve.stores.ledger import Entry, Outcome

_SECRET_CHARACTERS_MAX: Final = 16 * 1024


provider_option = click.option(
    "--provider",
    type=click.Choice([provider.value for provider in Provider]),
    required=True,
    help=f"The biller: {' or '.join(f'{name} ({provider})' for provider, name in BILLER_NAMES.items())}.",
)


@click.group(no_args_is_help=False)
def webhooks() -> None:
    """Billing webhooks."""


@webhooks.command()
@app_option
@provider_option
@test_option
@data_options
def secret(*, app: str, provider: str, test: bool, data: Path | None, as_json: bool) -> None:
    """Save a signing secret, read from standard input. The first test secret creates the app's test environment."""
    signing_secret = trimmed_secret(_secret_from_standard_input())
    environment = Environment.TEST if test else Environment.LIVE
    with open_existing(data) as parts:
        found = operator.find_app(parts, app)
        public_id = save_secret(parts, found, environment, Provider(provider), signing_secret)
    doubt = doubt_about(signing_secret, Provider(provider))
    if doubt is not None:
        click.echo(f"warning: {doubt}: compare it with the one the biller shows for this endpoint", err=True)
    path = f"/v1/webhooks/{provider}/{public_id}"
    print_result({"project": public_id, "path": path}, as_json=as_json, text=f"saved; deliveries go to {path}")


@webhooks.command("list")
@app_option
@data_options
def list_all(*, app: str, data: Path | None, as_json: bool) -> None:
    """List an app's recent deliveries, and count all results and warnings."""
    from mauve.wiring.databases import open_delivery_reader  # noqa: PLC0415 - slow to import

    with open_existing(data) as parts, open_delivery_reader(settings_for(data)) as reader:
        environments = _environments_of(operator.find_app(parts, app))
        deliveries = [
            {"plane": environment, **asdict(delivery)}
            for environment, project in environments
            for delivery in reader.recent(project)
        ]
        counts = [
            {"plane": environment, **asdict(tally)}
            for environment, project in environments
            for tally in reader.tallies(project)
        ]
    deliveries.sort(key=lambda delivery: delivery["at"], reverse=True)
    print_result({"counts": counts, "deliveries": deliveries}, as_json=as_json, text=_listing(counts, deliveries))


def _environments_of(app: App) -> list[tuple[Environment, str]]:
    """Return the app's environments, each with its project."""
    test = [] if app.test_public_id is None else [(Environment.TEST, app.test_public_id)]
    return [(Environment.LIVE, app.public_id), *test]


def _listing(counts: list[dict[str, Any]], deliveries: list[dict[str, Any]]) -> str:
    counted = [
        [each["plane"], BILLER_NAMES[each["provider"]], each["word"], each["count"], utc_time(each["last_at"])]
        for each in counts
    ]
    columns = ("type", "result", "rows")
    listed = [
        [utc_time(each["at"]), each["plane"], BILLER_NAMES[each["provider"]]]
        + [each[name] for name in columns]
        + [" ".join(each["warnings"])]
        for each in deliveries
    ]
    above = table(["ENVIRONMENT", "BILLER", "WHAT", "COUNT", "LAST"], counted, "no deliveries yet")
    below = table(["TIME", "ENVIRONMENT", "BILLER", "TYPE", "RESULT", "ROWS", "WARNINGS"], listed, "")
    return f"{above}\n\n{below}".rstrip()


def _secret_from_standard_input() -> str:
    if sys.stdin is None:
        raise UsageError("the secret is read from standard input, which is closed: pipe it in")
    if sys.stdin.isatty():
        click.echo("paste the secret, then press Enter and Ctrl-D:", err=True)
    try:
        text = sys.stdin.read(_SECRET_CHARACTERS_MAX + 1)
        text.encode()  # Some locales let stray bytes through as lone surrogates.
    except UnicodeError:
        raise UsageError("the secret on standard input is not valid UTF-8: paste it again") from None
    if len(text) > _SECRET_CHARACTERS_MAX:
        raise UsageError(f"the secret is longer than {_SECRET_CHARACTERS_MAX} characters: check what you pasted")
    return text


@webhooks.command()
@app_option
@provider_option
@test_option
@click.option("--dry-run", is_flag=True, help="Read and summarize the file; record nothing.")
@click.argument("file", type=click.File("rb"))
@data_options
def replay(
    *, app: str, provider: str, test: bool, dry_run: bool, file: BufferedReader, data: Path | None, as_json: bool
) -> None:
    """Import events exported from a biller: one JSON object per line, as in a webhook delivery.

    Payments count on the day they were made, however long ago. Replaying the same file again changes nothing.
    """
    from mauve.imports.files import lines_of  # noqa: PLC0415 - slow to import
    from mauve.ingest.webhooks import replay as replaying  # noqa: PLC0415
    from mauve.ingest.webhooks.entries import Endpoint  # noqa: PLC0415
    from mauve.wiring.databases import open_ledger_writer  # noqa: PLC0415

    with open_existing(data) as parts, shown_progress(as_json=as_json) as progress:
        found = active_app(parts, app)
        environment = Environment.TEST if test else Environment.LIVE
        endpoint = Endpoint(project_of(found, test=test), found.org_id, environment, Provider(provider))
        progress.begin("replaying", os.fstat(file.fileno()).st_size)
        with nullcontext(replaying.DryRun()) if dry_run else open_ledger_writer(settings_for(data)) as recorder:
            checked = RecorderOfActiveApp(recorder, parts, app)
            summary = replaying.replay(
                _with_progress(lines_of(file), progress), endpoint, checked, parts.clock.now_ms()
            )
    text = _replay_text(summary, test=test, dry_run=dry_run)
    print_result(msgspec.to_builtins(summary) | {"dry_run": dry_run}, as_json=as_json, text=text)


class RecorderOfActiveApp:
    """Stops a replay when the app is archived or suspended: its data may be about to be deleted."""

    def __init__(self, recorder: "Recorder", parts: ControlParts, app_id: str) -> None:
        self._recorder = recorder
        self._parts = parts
        self._app_id = app_id

    def record(self, entries: "Sequence[Entry]") -> "list[list[Outcome]]":
        active_app(self._parts, self._app_id)
        return self._recorder.record(entries)


def _with_progress(lines: Iterable[bytes], progress: "Progress") -> Iterator[bytes]:
    for line in lines:
        yield line
        progress.add(len(line) + 1)


def _replay_text(summary: "Summary", *, test: bool, dry_run: bool) -> str:
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
