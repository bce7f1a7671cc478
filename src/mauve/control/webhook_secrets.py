"""Webhook signing secrets: saved sealed, published, never read back."""

from mauve.access.vault import Row
from mauve.control.bodies import WebhookSecretBody, invalid_body
from mauve.control.parts import ControlParts
from mauve.core.app import App, Environment
from mauve.core.biller import Provider
from mauve.core.ids import new_id
from mauve.core.secret import Secret
from mauve.stores.catalog import SealedSecret


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


def save_secret(parts: ControlParts, app: App, environment: Environment, provider: Provider, secret: Secret) -> str:
    """Replace any earlier secret and publish; return the public id of its project.

    The first test secret creates the app's test project.
    """
    row = Row(app.app_id, environment, provider)
    sealed = SealedSecret(
        app_id=app.app_id,
        environment=environment,
        provider=provider,
        sealed=parts.vault.seal(secret, row),
        saved_at=parts.clock.now_ms(),
    )
    public_id = parts.catalog.webhook_secrets.put(sealed, new_id("proj", parts.randomness))
    parts.publisher.publish_now()
    return public_id
