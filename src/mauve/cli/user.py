"""`mauve user`."""

from pathlib import Path
from typing import Any

import click

from mauve.cli.options import UsageError, base_url, data_options, open_existing, org_option
from mauve.cli.output import print_result, table, utc_time
from mauve.control import operator, people
from mauve.control.people import renew_setup_link
from mauve.core.user import Role
from mauve.stores.catalog import Member


@click.group(no_args_is_help=False)
def user() -> None:
    """Dashboard users."""


@user.command()
@org_option
@click.option("--email", required=True, metavar="E", help="The address they sign in with.")
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True, help="What they may do.")
@data_options
def create(*, org: str | None, email: str, role: str, data: Path | None, as_json: bool) -> None:
    """Add a user, and print a one-time link to set a password."""
    with open_existing(data) as parts:
        org_id = operator.choose_organization(parts, org).org_id
        created, link = people.create_user(parts, org_id, email, Role(role))
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


@user.command("list")
@org_option
@data_options
def list_all(*, org: str | None, data: Path | None, as_json: bool) -> None:
    """List an organization's users. Invited ones have not set a password yet."""
    with open_existing(data) as parts:
        org_id = operator.choose_organization(parts, org).org_id
        views = [_view(member) for member in parts.catalog.users.all_of(org_id)]
    rows = [
        [view["user_id"], view["email"], view["role"], view["state"], utc_time(view["created_at"])] for view in views
    ]
    text = table(["USER", "E-MAIL", "ROLE", "STATE", "CREATED"], rows, "no users yet: see 'mauve user create --help'")
    print_result(views, as_json=as_json, text=text)


@user.command()
@data_options
def link(*, data: Path | None, as_json: bool) -> None:
    """Print a new set-up link, which creates the first owner. It replaces the one that 'mauve serve' printed."""
    with open_existing(data) as parts:
        renewed = renew_setup_link(parts)
    if renewed is None:
        raise UsageError("an account already exists: 'mauve user reset --email E' prints a link to set a password")
    url = base_url(data) + renewed.path.reveal()
    print_result({"link": url}, as_json=as_json, text=url)


def _view(member: Member) -> dict[str, Any]:
    return {
        "user_id": member.user.user_id,
        "org_id": member.user.org_id,
        "email": member.user.email,
        "role": member.user.role,
        "state": "active" if member.has_password else "invited",
        "created_at": member.user.created_at,
    }
