"""`mauve key`."""

from pathlib import Path

import click

from mauve.cli.frame import MistakeError, answer, app_option, existing, on_data, test_option
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
    help="sk: a server key; pk: publishable, behavioural events only.",
)
@test_option
@on_data
def mint(*, app: str, kind: str, test: bool, data: Path | None, as_json: bool) -> None:
    """Mint a key. It is shown this once and cannot be shown again."""
    if test and kind == KeyKind.PUBLISHABLE:
        raise MistakeError("the test plane has server keys only: use --kind sk")
    with existing(data) as parts:
        found = operator.find_app(parts, app)
        if test and found.test_public_id is None:
            raise MistakeError(
                "this app has no test plane yet: save a test secret first with 'mauve webhooks secret --test'"
            )
        key_id, secret = mint_key(parts, found, KeyKind(kind), Environment.TEST if test else Environment.LIVE)
    shown = secret.reveal()
    answer({"key_id": key_id, "key": shown}, as_json=as_json, text=shown)
