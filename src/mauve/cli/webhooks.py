"""`mauve webhooks`."""

import sys
from pathlib import Path
from typing import Final

import click

from mauve.cli.frame import MistakeError, answer, app_option, existing, on_data, test_option
from mauve.control import operator
from mauve.control.webhook_secrets import save_secret, trimmed_secret
from mauve.core.facts import Plane, Provider

_SECRET_CHARACTERS_MAX: Final = 16 * 1024


@click.group(no_args_is_help=False)
def webhooks() -> None:
    """Billing webhooks."""


@webhooks.command()
@app_option
@click.option(
    "--provider",
    type=click.Choice([provider.value for provider in Provider]),
    required=True,
    help="Which biller signs with it.",
)
@test_option
@on_data
def secret(*, app: str, provider: str, test: bool, data: Path | None, as_json: bool) -> None:
    """Save a signing secret, read from standard input. The first test secret makes the app's test plane."""
    text = _secret_from_standard_input()
    plane = Plane.TEST if test else Plane.LIVE
    with existing(data) as parts:
        found = operator.find_app(parts, app)
        public_id = save_secret(parts, found, plane, Provider(provider), trimmed_secret(text))
    path = f"/v1/webhooks/{provider}/{public_id}"
    answer({"project": public_id, "path": path}, as_json=as_json, text=f"saved; deliveries go to {path}")


def _secret_from_standard_input() -> str:
    if sys.stdin is None:
        raise MistakeError("the secret is read from standard input, which is closed")
    if sys.stdin.isatty():
        click.echo("paste the secret, then press Enter and Ctrl-D:", err=True)
    try:
        text = sys.stdin.read(_SECRET_CHARACTERS_MAX + 1)
        text.encode()  # Some locales let stray bytes through as lone surrogates.
    except UnicodeError:
        raise MistakeError("the secret on standard input is not valid UTF-8") from None
    if len(text) > _SECRET_CHARACTERS_MAX:
        raise MistakeError(f"a secret has at most {_SECRET_CHARACTERS_MAX} characters")
    return text
