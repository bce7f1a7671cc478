"""`mauve app`."""

from pathlib import Path

import click

from mauve.cli.options import data_options, open_existing, org_option
from mauve.cli.output import print_result, table
from mauve.control import operator
from mauve.control.apps import create_app
from mauve.control.bodies import NewAppBody, app_body, created_app_body
from mauve.core.app import AppType, Ownership


@click.group(no_args_is_help=False)
def app() -> None:
    """Apps."""


@app.command()
@click.argument("name")
@org_option
@click.option(
    "--ownership",
    type=click.Choice([each.value for each in Ownership]),
    default=Ownership.MINE.value,
    show_default=True,
    help="Whether you run it for yourself or for a client.",
)
@click.option(
    "--type",
    "type_",
    type=click.Choice([each.value for each in AppType]),
    default=AppType.SAAS.value,
    show_default=True,
    help="The kind of app.",
)
@data_options
def create(*, name: str, org: str | None, ownership: str, type_: str, data: Path | None, as_json: bool) -> None:
    """Create an app with its first server key. The key is shown only once."""
    operator.checked_name(name)
    with open_existing(data) as parts:
        org_id = operator.choose_organization(parts, org).org_id
        created, key = create_app(parts, org_id, NewAppBody(name, Ownership(ownership), AppType(type_)))
    view = created_app_body(created, key.reveal())
    text = f"app         {view.app_id}\nproject     {view.public_id}\nserver key  {view.sk_key}"
    print_result(view, as_json=as_json, text=text)


@app.command("list")
@org_option
@data_options
def list_all(*, org: str | None, data: Path | None, as_json: bool) -> None:
    """List an organization's apps."""
    with open_existing(data) as parts:
        org_id = operator.choose_organization(parts, org).org_id
        apps = [app_body(each) for each in parts.catalog.apps.all_of(org_id)]
    rows = [[each.app_id, each.public_id, each.test_public_id or "-", each.name] for each in apps]
    text = table(
        ["APP", "PROJECT", "TEST PROJECT", "NAME"], rows, "no apps yet: create one with 'mauve app create NAME'"
    )
    print_result(apps, as_json=as_json, text=text)
