"""Quotas of an organization. Each check runs inside the transaction that adds something."""

from collections.abc import Sequence

from mauve.control.bodies import invalid_body
from mauve.core.credential import Scope
from mauve.core.organization import IN_ALL, Quotas
from mauve.core.problems import Code, Problem
from mauve.stores.catalog import Member, Tally


def check_new_app(quotas: Quotas, tally: Tally) -> None:
    """Refuse one app too many. Each comes with a key, which counts too."""
    _check_minter(tally, Scope.APPS_WRITE)
    _check(tally.apps, quotas.apps, "this organization has {} apps", "use one of them", "APPS_PER_ORGANIZATION")
    _check_keys_of_organization(quotas, tally)


def check_new_key(quotas: Quotas, tally: Tally) -> None:
    _check_minter(tally, Scope.KEYS_WRITE)
    limit, setting = quotas.keys_per_app, "KEYS_PER_APP"
    _check(tally.app_keys, limit, "this app has {} keys that work", "revoke one first", setting)
    had = "this app has {} keys with the revoked ones"
    _check(tally.app_keys_in_all, limit * IN_ALL, had, "use another app", setting)
    _check_keys_of_organization(quotas, tally)


def check_new_token(quotas: Quotas, tally: Tally, scopes: frozenset[Scope]) -> None:
    _check_minter(tally, *scopes)
    limit, has, setting = quotas.tokens, "this organization has {} control tokens", "TOKENS_PER_ORGANIZATION"
    _check(tally.tokens, limit, f"{has} that work", "revoke one first", setting)
    _check(tally.tokens_in_all, limit * IN_ALL, f"{has} with the revoked ones", "use one that works", setting)


def check_new_member(quotas: Quotas, members: Sequence[Member]) -> None:
    has = "this organization has {} members with the invited ones"
    _check(len(members), quotas.members, has, "remove a member first", "MEMBERS_PER_ORGANIZATION")


def _check_keys_of_organization(quotas: Quotas, tally: Tally) -> None:
    limit, have, setting = quotas.keys, "the apps of this organization have {} keys", "KEYS_PER_ORGANIZATION"
    _check(tally.keys, limit, f"{have} that work", "revoke one first", setting)
    _check(tally.keys_in_all, limit * IN_ALL, f"{have} with the revoked ones", "use one that works", setting)


def _check_minter(tally: Tally, *needed: Scope) -> None:
    """Refuse a minter that was removed, demoted or revoked since the request began."""
    if not tally.minter_scopes.issuperset(needed):
        raise Problem(Code.INSUFFICIENT_SCOPE, "the right to do this was taken away a moment ago: ask an owner")


def _check(count: int, limit: int, has: str, what_to_do: str, setting: str) -> None:
    if count >= limit:
        advice = f"{what_to_do}, or have the operator raise MAUVE_{setting}"
        raise invalid_body(f"{has.format(count)}, the most that is allowed: {advice}")
