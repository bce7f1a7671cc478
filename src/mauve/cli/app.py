"""`mauve app`."""

from pathlib import Path

import click

from mauve.cli.options import data_options, open_existing, org_option
from mauve.cli.output import print_result, table
from mauve.control import operator
from mauve.control.bodies import app_body


@click.group(no_args_is_help=False)
def app() -> None:
    """Apps."""


@app.command("list")
@org_option
@data_options
def list_all(*, org: str, data: Path | None, as_json: bool) -> None:
    """List an organization's apps."""
    with open_existing(data) as parts:
        operator.find_organization(parts, org)
        apps = [app_body(each) for each in parts.catalog.apps.all_of(org)]
    rows = [[each.app_id, each.public_id, each.test_public_id or "-", each.name] for each in apps]
    text = table(["APP", "PROJECT", "TEST PROJECT", "NAME"], rows, "no apps yet: create one with POST /v1/apps")
    print_result(apps, as_json=as_json, text=text)
