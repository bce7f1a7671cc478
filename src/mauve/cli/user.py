"""`mauve user`."""

from pathlib import Path

import click

from mauve.cli.frame import answer, base_url, existing, on_data, org_option
from mauve.control import operator
from mauve.core.facts import Role


@click.group(no_args_is_help=False)
def user() -> None:
    """People who sign in."""


@user.command()
@org_option
@click.option("--email", required=True, metavar="E", help="The address they sign in with.")
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True, help="What they may do.")
@on_data
def create(*, org: str, email: str, role: str, data: Path | None, as_json: bool) -> None:
    """Add a person, and print a one-time link with which they set their password."""
    with existing(data) as parts:
        created, link = operator.create_user(parts, org, email, Role(role))
    url = base_url(data) + link.path.reveal()
    view = {"user_id": created.user_id, "email": created.email, "role": created.role, "link": url}
    answer(view, as_json=as_json, text=f"{created.user_id}\n{url}")
