"""`mauve token`."""

from pathlib import Path

import click

from mauve.cli.options import UsageError, data_options, open_existing, org_option
from mauve.cli.output import print_result, table
from mauve.control import operator
from mauve.control.people import emails_of
from mauve.core.credential import ControlToken, Scope


@click.group(no_args_is_help=False)
def token() -> None:
    """Control tokens, which an organization's programs use to manage its apps."""


@token.command()
@org_option
@click.option("--scopes", required=True, metavar="a,b,…", help=f"Any of {', '.join(Scope)}.")
@click.option("--name", default="operator", metavar="TEXT", help="What it is for.")
@data_options
def mint(*, org: str | None, scopes: str, name: str, data: Path | None, as_json: bool) -> None:
    """Mint a token. It is shown only once."""
    chosen = _scopes_from(scopes)
    with open_existing(data) as parts:
        org_id = operator.choose_organization(parts, org).org_id
        token_id, secret = operator.mint_token(parts, org_id, name, chosen)
    shown = secret.reveal()
    print_result({"token_id": token_id, "token": shown}, as_json=as_json, text=shown)


@token.command("list")
@org_option
@data_options
def list_all(*, org: str | None, data: Path | None, as_json: bool) -> None:
    """List an organization's tokens, including revoked ones."""
    with open_existing(data) as parts:
        org_id = operator.choose_organization(parts, org).org_id
        tokens = parts.catalog.tokens.all_of(org_id)
        emails = emails_of(parts, org_id)
    rows = [
        [
            each.token_id,
            "revoked" if each.revoked else "active",
            _joined(each),
            emails.get(each.minted_by, each.minted_by),
            each.name,
        ]
        for each in tokens
    ]
    text = table(
        ["TOKEN", "STATE", "SCOPES", "MINTED BY", "NAME"], rows, "no tokens yet: create one with 'mauve token mint'"
    )
    print_result([_view(each) for each in tokens], as_json=as_json, text=text)


@token.command()
@click.argument("token_id")
@data_options
def revoke(*, token_id: str, data: Path | None, as_json: bool) -> None:
    """Revoke a token permanently."""
    with open_existing(data) as parts:
        revoked = operator.revoke_token(parts, token_id)
    print_result(_view(revoked), as_json=as_json, text=f"{revoked.token_id} is revoked")


def _scopes_from(text: str) -> frozenset[Scope]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in frozenset(Scope)]
    if unknown or not names:
        what = f"{unknown[0]!r} is not a scope" if unknown else "--scopes is empty"
        raise UsageError(f"{what}: choose from {', '.join(Scope)}")
    return frozenset(map(Scope, names))


def _joined(token: ControlToken) -> str:
    return ",".join(sorted(token.scopes))


def _view(token: ControlToken) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "org_id": token.org_id,
        "name": token.name,
        "scopes": sorted(token.scopes),
        "revoked": token.revoked,
        "created_at": token.created_at,
        "minted_by": token.minted_by,
    }
