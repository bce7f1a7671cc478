"""Webhook signing secrets: saved sealed, published, never read back."""

from collections.abc import Sequence
from typing import Final

from mauve.access.vault import webhook_row
from mauve.control import ControlParts
from mauve.control.apps import check_not_archived
from mauve.control.bodies import WebhookSecretBody, invalid_body
from mauve.core.app import App, Environment
from mauve.core.biller import Provider
from mauve.core.ids import new_id
from mauve.core.secret import Secret
from mauve.stores.catalog import SealedSecret

_STRIPE_PREFIX: Final = "whsec_"
_POLAR_PREFIXES: Final = ("whsec_", "polar_whs_")
_POLAR_CHARACTERS_MIN: Final = 32  # of a secret that the merchant has chosen, which has no prefix
_REST_CHARACTERS_MIN: Final = 16  # after a prefix; the billers' secrets have at least 32
_PLACEHOLDER_CHARACTERS: Final = 40


def secret_from(body: WebhookSecretBody, environment: Environment) -> Secret:
    """Return the secret to save, for a credential of the given environment."""
    if isinstance(body.environment, str) and body.environment != environment:
        raise invalid_body(f"environment must be {environment}, the one of the credential, or be left out")
    return trimmed_secret(body.secret)


def trimmed_secret(text: str) -> Secret:
    trimmed = text.strip()
    if not trimmed:
        raise invalid_body("secret must have at least 1 character besides white space")
    return Secret(trimmed)


def doubt_about(secret: Secret, provider: Provider) -> str | None:
    """Return why the text is probably not a signing secret of this biller; None if it looks like one."""
    text = secret.reveal()
    match provider:
        case Provider.BILLER_A if not _has_prefix_and_rest(text, (_STRIPE_PREFIX,)):
            return (
                f"this does not look like a signing secret of Stripe, which begins with {_STRIPE_PREFIX} "
                f"and has at least {_REST_CHARACTERS_MIN} more characters"
            )
        case Provider.BILLER_B if not _has_prefix_and_rest(text, _POLAR_PREFIXES) and len(text) < _POLAR_CHARACTERS_MIN:
            return (
                f"this does not look like a signing secret of Polar, which begins with {' or '.join(_POLAR_PREFIXES)} "
                f"and has at least {_REST_CHARACTERS_MIN} more characters, or has at least {_POLAR_CHARACTERS_MIN}"
            )
        case _:
            return None


def _has_prefix_and_rest(text: str, prefixes: Sequence[str]) -> bool:
    return any(text.startswith(each) and len(text) - len(each) >= _REST_CHARACTERS_MIN for each in prefixes)


def save_secret(parts: ControlParts, app: App, environment: Environment, provider: Provider, secret: Secret) -> str:
    """Replace any earlier secret, which is refused from then on, and publish; return the public id of its project.

    The first test secret creates the app's test project.
    """
    check_not_archived(app)
    return _put(parts, app, environment, provider, secret)


def prepare_environment(parts: ControlParts, app: App, environment: Environment) -> None:
    """Create the environment's addresses: a biller shows its secret only after it was given the address.

    Until that secret is saved, a random placeholder stands in its place, so deliveries are refused. Secrets that are
    saved already stay.
    """
    check_not_archived(app)
    for provider in Provider:
        random = Secret(_STRIPE_PREFIX + parts.randomness.base62(_PLACEHOLDER_CHARACTERS))
        _put(parts, app, environment, provider, random, is_placeholder=True)


def _put(
    parts: ControlParts,
    app: App,
    environment: Environment,
    provider: Provider,
    secret: Secret,
    *,
    is_placeholder: bool = False,
) -> str:
    row = (app.app_id, environment, provider)
    sealed = SealedSecret(*row, parts.vault.seal(secret, webhook_row(*row)), parts.clock.now_ms(), is_placeholder)
    return parts.catalog.webhook_secrets.put(sealed, new_id("proj", parts.randomness))
