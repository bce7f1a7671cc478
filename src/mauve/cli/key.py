"""`mauve key`."""

from pathlib import Path

import click

from mauve.cli.options import NO_TEST_ENVIRONMENT, UsageError, app_option, data_options, open_existing, test_option
from mauve.cli.output import print_result, table, utc_time
from mauve.control import operator
from mauve.control.apps import mint_key, revoke_key
from mauve.control.people import emails_of
from mauve.core.app import Environment
from mauve.core.credential import AppKey, KeyKind


@click.group(no_args_is_help=False)
def key() -> None:
    """Data-plane keys."""


@key.command()
@app_option
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in KeyKind]),
    required=True,
    help="sk: a server key; pk: publishable, behavioral events only.",
)
@click.option("--name", default="", metavar="TEXT", help="What it is for.")
@test_option
@data_options
def mint(*, app: str, kind: str, name: str, test: bool, data: Path | None, as_json: bool) -> None:
    """Mint a key. It is shown only once."""
    if test and kind == KeyKind.PUBLISHABLE:
        raise UsageError("the test environment has only server keys: use --kind sk")
    with open_existing(data) as parts:
        found = operator.find_app(parts, app)
        if test and found.test_public_id is None:
            raise UsageError(NO_TEST_ENVIRONMENT)
        environment = Environment.TEST if test else Environment.LIVE
        key_id, secret = mint_key(parts, found, KeyKind(kind), environment, name=name)
    shown = secret.reveal()
    print_result({"key_id": key_id, "key": shown}, as_json=as_json, text=shown)


@key.command("list")
@app_option
@data_options
def list_all(*, app: str, data: Path | None, as_json: bool) -> None:
    """List an app's keys, including revoked ones."""
    with open_existing(data) as parts:
        found = operator.find_app(parts, app)
        keys = parts.catalog.keys.all_of(found.app_id)
        emails = emails_of(parts, found.org_id)
    rows = [
        [
            each.key_id,
            each.masked,
            each.environment,
            "revoked" if each.revoked else "active",
            utc_time(each.created_at),
            "never" if each.last_used_at is None else utc_time(each.last_used_at),
            emails.get(each.minted_by or "", each.minted_by or "unknown"),
            each.name or "-",
        ]
        for each in keys
    ]
    headings = ["KEY", "MASKED", "ENVIRONMENT", "STATE", "CREATED", "LAST USED", "MINTED BY", "NAME"]
    text = table(headings, rows, "no keys yet: create one with 'mauve key mint'")
    print_result([_view(each) for each in keys], as_json=as_json, text=text)


@key.command()
@app_option
@click.argument("key_id")
@data_options
def revoke(*, app: str, key_id: str, data: Path | None, as_json: bool) -> None:
    """Revoke a key permanently."""
    with open_existing(data) as parts:
        found = operator.find_app(parts, app)
        if key_id not in {each.key_id for each in parts.catalog.keys.all_of(found.app_id)}:
            raise UsageError(f"{app} has no key {key_id!r}: see 'mauve key list --app {app}'")
        revoke_key(parts, found, key_id)
    print_result({"key_id": key_id, "revoked": True}, as_json=as_json, text=f"{key_id} is revoked")


def _view(key: AppKey) -> dict[str, object]:
    return {
        "key_id": key.key_id,
        "app_id": key.app_id,
        "project": key.public_id,
        "environment": key.environment,
        "kind": key.kind,
        "masked": key.masked,
        "revoked": key.revoked,
        "created_at": key.created_at,
        "last_used_at": key.last_used_at,
        "minted_by": key.minted_by,
        "name": key.name,
    }
