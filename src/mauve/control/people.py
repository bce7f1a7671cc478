"""Members of an organization, and one-time links to set a password or, before any account exists, to set up."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from mauve.access.keys import digest_of
from mauve.access.passwords import hash_of, password_problem
from mauve.control import ControlParts
from mauve.control.operator import RefusedError, checked_email, find_organization, new_organization
from mauve.control.quotas import check_new_member
from mauve.core.credential import Scope
from mauve.core.ids import is_id, new_id
from mauve.core.problems import Code, Problem, existing, not_found
from mauve.core.secret import Secret
from mauve.core.user import Role, User, roles_within, scopes_of
from mauve.stores.catalog import Member, Minted, OneTimeLink, Withdrawal

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


def create_user(parts: ControlParts, org_id: str, email: str, role: Role) -> tuple[User, MintedLink]:
    """Add a user, with a one-time link to set the password. Until then the user counts as invited."""
    find_organization(parts, org_id)
    user = User(
        user_id=new_id("usr", parts.randomness),
        org_id=org_id,
        email=checked_email(email),
        role=role,
        created_at=parts.clock.now_ms(),
    )
    link, minted = new_link(parts, "password", user.user_id)
    if not parts.catalog.users.create(user, link, partial(check_new_member, parts.quotas)):
        raise RefusedError(f"{user.email} has an account already: choose another address")
    return user, minted


def renew_link(parts: ControlParts, user: User) -> MintedLink:
    """Replace any earlier password link. The old password works until the new link is used."""
    link, minted = new_link(parts, "password", user.user_id)
    parts.catalog.links.replace(link)
    return minted


def find_account(parts: ControlParts, email: str) -> User:
    """Return a user of any organization: for the operator only."""
    address = checked_email(email)
    account = parts.catalog.passwords.find(address)
    if account is None:
        raise RefusedError(f"{address} has no account: see 'mauve user create --help'")
    return account.user


def emails_of(parts: ControlParts, org_id: str) -> dict[str, str]:
    """Return the address of each member by user id, to name who minted a credential."""
    return {member.user.user_id: member.user.email for member in parts.catalog.users.all_of(org_id)}


def invite(parts: ControlParts, actor: User, email: str, role: Role) -> tuple[User, MintedLink]:
    _check_reach(actor, role)
    return create_user(parts, actor.org_id, email, role)


def find_member(parts: ControlParts, org_id: str, user_id: str) -> Member:
    found = parts.catalog.users.find(user_id) if is_id(user_id, "usr") else None
    if found is None or found.user.org_id != org_id:
        raise not_found()
    return found


def managed_member(parts: ControlParts, actor: User, user_id: str) -> Member:
    """Return the member if the actor may change them."""
    found = find_member(parts, actor.org_id, user_id)
    _check_reach(actor, found.user.role)
    return found


def change_role(parts: ControlParts, actor: User, user_id: str, role: Role, withdraw: Withdrawal) -> None:
    """Change the role, and revoke the withdrawn credentials in the same transaction."""
    _check_reach(actor, role)

    def check(members: Sequence[Member]) -> None:
        _check_reach(actor, _role_of(members, user_id))
        if role is not Role.OWNER:
            check_owner_remains(members, user_id)

    if not parts.catalog.users.change_role(actor.org_id, user_id, role, check, withdraw):
        raise not_found()


def remove_member(parts: ControlParts, actor: User, user_id: str, withdraw: Withdrawal) -> None:
    """Remove the user, and revoke the withdrawn credentials in the same transaction."""

    def check(members: Sequence[Member]) -> None:
        _check_reach(actor, _role_of(members, user_id))
        check_owner_remains(members, user_id)

    if not parts.catalog.users.remove(actor.org_id, user_id, check, withdraw):
        raise not_found()


def beyond(role: Role | None, minted: Minted) -> Minted:
    """Return the minted credentials that the role could not mint; a role of None stands for removal."""
    if role is None:
        return minted
    held = scopes_of(role)
    return Minted(
        tokens=tuple(token for token in minted.tokens if not token.scopes <= held),
        keys=() if Scope.KEYS_WRITE in held else minted.keys,
    )


def check_owner_remains(members: Sequence[Member], without: str) -> None:
    """Refuse to leave an organization without an owner who can sign in; invited owners do not count."""
    owners = [member for member in members if member.user.role is Role.OWNER and member.has_password]
    if [owner.user.user_id for owner in owners] == [without]:
        raise RefusedError("this is the last owner: make another member an owner first")


def _check_reach(actor: User, role: Role) -> None:
    """Refuse to grant or change a role above the actor's own, which would allow privilege escalation."""
    if role not in roles_within(actor.role):
        raise Problem(Code.FORBIDDEN, f"this takes the role {role}: ask an owner")


def _role_of(members: Sequence[Member], user_id: str) -> Role:
    return existing(next((member for member in members if member.user.user_id == user_id), None)).user.role
