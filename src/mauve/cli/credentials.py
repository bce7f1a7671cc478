"""`mauve key` and `mauve token`."""

from pathlib import Path

import click

from mauve.cli.options import UsageError, app_option, data_options, open_existing, org_option, project_of, test_option
from mauve.cli.output import print_result, table, utc_time
from mauve.control import operator
from mauve.control.apps import mint_key, revoke_key
from mauve.control.people import emails_of
from mauve.core.app import Environment
from mauve.core.credential import AppKey, ControlToken, KeyKind, Scope


@click.group(no_args_is_help=False)
def key() -> None:
    """Data-plane keys."""


@key.command("mint")
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
def mint_app_key(*, app: str, kind: str, name: str, test: bool, data: Path | None, as_json: bool) -> None:
    """Mint a key. It is shown only once."""
    if test and kind == KeyKind.PUBLISHABLE:
        raise UsageError("the test environment has only server keys: use --kind sk")
    with open_existing(data) as parts:
        found = operator.find_app(parts, app)
        project_of(found, test=test)  # It must exist.
        environment = Environment.TEST if test else Environment.LIVE
        key_id, secret = mint_key(parts, found, KeyKind(kind), environment, name=name)
    shown = secret.reveal()
    print_result({"key_id": key_id, "key": shown}, as_json=as_json, text=shown)


@key.command("list")
@app_option
@data_options
def list_app_keys(*, app: str, data: Path | None, as_json: bool) -> None:
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
    print_result([_key_view(each) for each in keys], as_json=as_json, text=text)


@key.command("revoke")
@app_option
@click.argument("key_id")
@data_options
def revoke_app_key(*, app: str, key_id: str, data: Path | None, as_json: bool) -> None:
    """Revoke a key permanently."""
    with open_existing(data) as parts:
        found = operator.find_app(parts, app)
        if key_id not in {each.key_id for each in parts.catalog.keys.all_of(found.app_id)}:
            raise UsageError(f"{app} has no key {key_id!r}: see 'mauve key list --app {app}'")
        revoke_key(parts, found, key_id)
    print_result({"key_id": key_id, "revoked": True}, as_json=as_json, text=f"{key_id} is revoked")


def _key_view(key: AppKey) -> dict[str, object]:
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


@click.group(no_args_is_help=False)
def token() -> None:
    """Control tokens, which an organization's programs use to manage its apps."""


@token.command("mint")
@org_option
@click.option("--scopes", required=True, metavar="a,b,…", help=f"Any of {', '.join(Scope)}.")
@click.option("--name", default="operator", metavar="TEXT", help="What it is for.")
@data_options
def mint_control_token(*, org: str | None, scopes: str, name: str, data: Path | None, as_json: bool) -> None:
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
def list_tokens(*, org: str | None, data: Path | None, as_json: bool) -> None:
    """List an organization's tokens, including revoked ones."""
    with open_existing(data) as parts:
        org_id = operator.choose_organization(parts, org).org_id
        tokens = parts.catalog.tokens.all_of(org_id)
        emails = emails_of(parts, org_id)
    rows = [
        [
            each.token_id,
            "revoked" if each.revoked else "active",
            ",".join(sorted(each.scopes)),
            emails.get(each.minted_by, each.minted_by),
            each.name,
        ]
        for each in tokens
    ]
    text = table(
        ["TOKEN", "STATE", "SCOPES", "MINTED BY", "NAME"], rows, "no tokens yet: create one with 'mauve token mint'"
    )
    print_result([_token_view(each) for each in tokens], as_json=as_json, text=text)


@token.command("revoke")
@click.argument("token_id")
@data_options
def revoke_control_token(*, token_id: str, data: Path | None, as_json: bool) -> None:
    """Revoke a token permanently."""
    with open_existing(data) as parts:
        revoked = operator.revoke_token(parts, token_id)
    print_result(_token_view(revoked), as_json=as_json, text=f"{revoked.token_id} is revoked")


def _scopes_from(text: str) -> frozenset[Scope]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in frozenset(Scope)]
    if unknown or not names:
        what = f"{unknown[0]!r} is not a scope" if unknown else "--scopes is empty"
        raise UsageError(f"{what}: choose from {', '.join(Scope)}")
    return frozenset(map(Scope, names))


def _token_view(token: ControlToken) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "org_id": token.org_id,
        "name": token.name,
        "scopes": sorted(token.scopes),
        "revoked": token.revoked,
        "created_at": token.created_at,
        "minted_by": token.minted_by,
    }
