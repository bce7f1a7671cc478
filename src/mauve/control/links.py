"""One-time links: the set-up link, which creates the first owner, and links to set a password."""

from dataclasses import dataclass
from typing import Final

from mauve.access.keys import digest_of
from mauve.access.passwords import hash_of, password_problem
from mauve.control.dependencies import ControlParts
from mauve.control.operator import RefusedError, checked_email, new_organization
from mauve.core.ids import new_id
from mauve.core.problems import existing, not_found
from mauve.core.secret import Secret
from mauve.core.user import Role, User
from mauve.stores.catalog import OneTimeLink

LINK_LIFETIME_MS: Final = 7 * 24 * 3600 * 1000
_SECRET_CHARACTERS: Final = 40
_TOO_LATE: Final = "this link was used a moment ago: sign in, or ask for a new one"


@dataclass(frozen=True, slots=True)
class MintedLink:
    """A one-time link just created, the only time its secret is known."""

    path: Secret
    expires_at: int


def renew_setup_link(parts: ControlParts) -> MintedLink | None:
    """Return a new link to create the first owner; None once there is an account."""
    if parts.catalog.users.any_exist():
        return None
    link, minted = new_link(parts, "setup", None)
    parts.catalog.links.replace_setup(link)
    return minted


def new_link(parts: ControlParts, purpose: str, user_id: str | None) -> tuple[OneTimeLink, MintedLink]:
    secret = parts.randomness.base62(_SECRET_CHARACTERS)
    now = parts.clock.now_ms()
    link = OneTimeLink(
        link_id=new_id("lnk", parts.randomness),
        digest=digest_of(secret),
        user_id=user_id,
        expires_at=now + LINK_LIFETIME_MS,
        created_at=now,
    )
    return link, MintedLink(Secret(f"/{purpose}/{secret}"), link.expires_at)


def find_setup_link(parts: ControlParts, secret: str) -> OneTimeLink:
    """Return the set-up link with that secret if it can still be used: only before the first account exists."""
    link = _usable_link(parts, secret)
    if link.user_id is not None or parts.catalog.users.any_exist():
        raise not_found()
    return link


def find_password_link(parts: ControlParts, secret: str) -> tuple[OneTimeLink, User]:
    """Return the password link with that secret and its user, if it can still be used."""
    link = _usable_link(parts, secret)
    return link, existing(None if link.user_id is None else parts.catalog.users.find(link.user_id)).user


def make_first_owner(parts: ControlParts, secret: str, org_name: str, email: str, password: Secret) -> User:
    """Create the organization and its owner, and invalidate the set-up link."""
    link = find_setup_link(parts, secret)
    organization = new_organization(parts, org_name)
    address = checked_email(email)
    owner = User(
        user_id=new_id("usr", parts.randomness),
        org_id=organization.org_id,
        email=address,
        role=Role.OWNER,
        created_at=organization.created_at,
    )
    hashed = checked_hash(password, address)
    if not parts.catalog.links.use_setup(link.digest, organization, owner, hashed, parts.clock.now_ms()):
        raise RefusedError(_TOO_LATE)
    return owner


def set_password(parts: ControlParts, secret: str, password: Secret) -> User:
    """Store the password, end every session of the user, and invalidate the link."""
    link, holder = find_password_link(parts, secret)
    if parts.catalog.links.use(link.digest, checked_hash(password, holder.email), parts.clock.now_ms()) is None:
        raise RefusedError(_TOO_LATE)
    return holder


def checked_hash(password: Secret, email: str) -> str:
    """Return the hash of an acceptable password; refuse any other."""
    flaw = password_problem(password, email)
    if flaw is not None:
        raise RefusedError(flaw)
    return hash_of(password)


def _usable_link(parts: ControlParts, secret: str) -> OneTimeLink:
    link = parts.catalog.links.find(digest_of(secret))
    if link is None or parts.clock.now_ms() >= link.expires_at:
        raise not_found()
    return link
