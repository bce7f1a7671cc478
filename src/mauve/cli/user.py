"""`mauve user`."""

from pathlib import Path

import click

from mauve.cli.options import base_url, data_options, open_existing, org_option
from mauve.cli.output import print_result
from mauve.control import people
from mauve.core.user import Role


@click.group(no_args_is_help=False)
def user() -> None:
    """Dashboard users."""


@user.command()
@org_option
@click.option("--email", required=True, metavar="E", help="The address they sign in with.")
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True, help="What they may do.")
@data_options
def create(*, org: str, email: str, role: str, data: Path | None, as_json: bool) -> None:
    """Add a user, and print a one-time link to set a password."""
    with open_existing(data) as parts:
        created, link = people.create_user(parts, org, email, Role(role))
    url = base_url(data) + link.path.reveal()
    view = {"user_id": created.user_id, "email": created.email, "role": created.role, "link": url}
    print_result(view, as_json=as_json, text=f"{created.user_id}\n{url}")


@user.command()
@click.option("--email", required=True, metavar="E", help="The address they sign in with.")
@data_options
def reset(*, email: str, data: Path | None, as_json: bool) -> None:
    """Print a new one-time link to set a password. The old password works until the link is used."""
    with open_existing(data) as parts:
        found = people.find_account(parts, email)
        link = people.renew_link(parts, found)
    url = base_url(data) + link.path.reveal()
    print_result({"user_id": found.user_id, "email": found.email, "link": url}, as_json=as_json, text=url)
