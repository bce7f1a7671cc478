"""`mauve key`."""

from pathlib import Path

import click

from mauve.cli.options import UsageError, app_option, data_options, open_existing, test_option
from mauve.cli.output import print_result
from mauve.control import operator
from mauve.control.keys import mint_key
from mauve.core.app import Environment
from mauve.core.credential import KeyKind


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
@test_option
@data_options
def mint(*, app: str, kind: str, test: bool, data: Path | None, as_json: bool) -> None:
    """Mint a key. It is shown only once."""
    if test and kind == KeyKind.PUBLISHABLE:
        raise UsageError("the test environment has only server keys: use --kind sk")
    with open_existing(data) as parts:
        found = operator.find_app(parts, app)
        if test and found.test_public_id is None:
            raise UsageError(
                "this app has no test environment yet: save a test secret first with 'mauve webhooks secret --test'"
            )
        key_id, secret = mint_key(parts, found, KeyKind(kind), Environment.TEST if test else Environment.LIVE)
    shown = secret.reveal()
    print_result({"key_id": key_id, "key": shown}, as_json=as_json, text=shown)
