"""`mauve webhooks`."""

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from mauve.cli.options import UsageError, app_option, data_options, open_existing, settings_for, test_option
from mauve.cli.output import print_result, table
from mauve.cli.replay import provider_option, replay
from mauve.control import operator
from mauve.control.webhook_secrets import doubt_about, save_secret, trimmed_secret
from mauve.core.app import App, Environment
from mauve.core.biller import BILLER_NAMES, Provider

_SECRET_CHARACTERS_MAX: Final = 16 * 1024


@click.group(no_args_is_help=False)
def webhooks() -> None:
    """Billing webhooks."""


webhooks.add_command(replay)


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
        [each["plane"], BILLER_NAMES[each["provider"]], each["word"], each["count"], _time(each["last_at"])]
        for each in counts
    ]
    columns = ("type", "result", "rows")
    listed = [
        [_time(each["at"]), each["plane"], BILLER_NAMES[each["provider"]]]
        + [each[name] for name in columns]
        + [" ".join(each["warnings"])]
        for each in deliveries
    ]
    above = table(["PLANE", "BILLER", "WHAT", "COUNT", "LAST"], counted, "no deliveries yet")
    below = table(["TIME", "PLANE", "BILLER", "TYPE", "RESULT", "ROWS", "WARNINGS"], listed, "")
    return f"{above}\n\n{below}".rstrip()


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


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
