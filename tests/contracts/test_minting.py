"""What the catalog promises about minting: who minted, how much there is, and what is revoked with a person.

Proves: quotas.
"""

from dataclasses import replace

import pytest

from mauve.core.credential import OPERATOR, ControlToken, Scope
from mauve.core.user import Role, User, scopes_of
from mauve.stores.catalog import Minted, NewToken, OneTimeLink, Tally
from support.catalog_entries import (
    NOW,
    RANDOM,
    a_key,
    an_app,
    an_id,
    an_organization,
    in_parallel,
    let_pass,
)


def a_token(org, minted_by=OPERATOR, scopes=(Scope.APPS_READ,)):
    return ControlToken(
        an_id("tok"), org.org_id, "a token", frozenset(scopes), revoked=False, created_at=NOW, minted_by=minted_by
    )


def mint_token(catalog, token, check=let_pass):
    catalog.tokens.mint(NewToken(token, RANDOM.base62(16), bytes(32)), check)
    return token


@pytest.fixture
def org(catalog):
    organization = an_organization()
    catalog.organizations.create(organization)
    return organization


@pytest.fixture
def ann(catalog, org):
    user = User(an_id("usr"), org.org_id, "ann@example.com", Role.DEVELOPER, NOW)
    link = OneTimeLink(an_id("lnk"), RANDOM.base62(32).encode(), user.user_id, NOW + 1, NOW)
    assert catalog.users.create(user, link, let_pass)
    return user


def an_app_of(catalog, org, minted_by=OPERATOR):
    return catalog.apps.create(an_app(org.org_id), a_key(minted_by=minted_by), let_pass)


class TestMinters:
    def test_the_minter_of_a_token_or_key_is_stored_with_it(self, catalog, org, ann):
        token = mint_token(catalog, a_token(org, ann.user_id))
        assert catalog.tokens.all_of(org.org_id) == [token]
        app = an_app_of(catalog, org, ann.user_id)
        catalog.keys.mint(app.app_id, a_key(minted_by=token.token_id, created_at=NOW + 1), let_pass)
        catalog.keys.mint(app.app_id, a_key(created_at=NOW + 2), let_pass)
        minters = [key.minted_by for key in catalog.keys.all_of(app.app_id)]
        assert minters == [ann.user_id, token.token_id, OPERATOR]

    def test_what_a_person_minted_includes_what_their_tokens_minted(self, catalog, org, ann):
        theirs = mint_token(catalog, a_token(org, ann.user_id))
        spent = mint_token(catalog, a_token(org, ann.user_id))
        mint_token(catalog, a_token(org))
        app = an_app_of(catalog, org)
        minters = [ann.user_id, theirs.token_id, spent.token_id, OPERATOR, "usr_other"]
        made = [
            catalog.keys.mint(app.app_id, a_key(minted_by=minter, created_at=NOW + at), let_pass)
            for at, minter in enumerate(minters)
        ]
        catalog.tokens.revoke(spent.token_id)
        assert catalog.users.minted_by(org.org_id, ann.user_id) == Minted((theirs,), tuple(made[:3]))
        catalog.keys.revoke(app.app_id, made[0].key_id)
        assert catalog.users.minted_by(org.org_id, ann.user_id) == Minted((theirs,), tuple(made[1:3]))
        other = an_organization()
        catalog.organizations.create(other)
        assert catalog.users.minted_by(other.org_id, ann.user_id) == Minted()


class TestWithdrawal:
    @pytest.fixture
    def minted(self, catalog, org, ann):
        mint_token(catalog, a_token(org, ann.user_id))
        mint_token(catalog, a_token(org, ann.user_id))
        an_app_of(catalog, org, ann.user_id)
        return catalog.users.minted_by(org.org_id, ann.user_id)

    def change(self, catalog, org, ann, how, withdraw):
        if how == "remove":
            return catalog.users.remove(org.org_id, ann.user_id, let_pass, withdraw)
        return catalog.users.change_role(org.org_id, ann.user_id, Role.VIEWER, let_pass, withdraw)

    @pytest.mark.parametrize("how", ["remove", "demote"])
    def test_selected_credentials_are_revoked_with_the_change_and_published(
        self, catalog, org, ann, minted, how, follower
    ):
        follower.news()
        first, second = minted.tokens
        offered = []

        def pick(found):
            offered.append(found)
            return Minted((first,), found.keys)

        assert self.change(catalog, org, ann, how, pick) is True
        assert offered == [minted]
        assert catalog.tokens.all_of(org.org_id) == [replace(first, revoked=True), second]
        (key,) = catalog.keys.all_of(minted.keys[0].app_id)
        assert key.revoked
        assert [record.revoked for record in follower.news()] == [True, True]

    @pytest.mark.parametrize("how", ["remove", "demote"])
    def test_if_the_selection_fails_nothing_changes(self, catalog, org, ann, minted, how):
        def fail(_minted):
            raise LookupError

        with pytest.raises(LookupError):
            self.change(catalog, org, ann, how, fail)
        assert catalog.users.find(ann.user_id).user == ann
        assert catalog.users.minted_by(org.org_id, ann.user_id) == minted


class TestTally:
    def seen(self, catalog, org, minted_by=OPERATOR, app=None):
        """Return the tally passed to a new key's check, without minting anything."""
        seen = []

        def refuse(tally):
            seen.append(tally)
            raise LookupError

        def mint():
            if app is None:
                mint_token(catalog, a_token(org, minted_by), refuse)
            else:
                catalog.keys.mint(app.app_id, a_key(minted_by=minted_by), refuse)

        with pytest.raises(LookupError):
            mint()
        return seen[0]

    def test_the_tally_counts_only_the_organization(self, catalog, org):
        other = an_organization()
        catalog.organizations.create(other)
        an_app_of(catalog, other)
        mint_token(catalog, a_token(other))
        one, two = an_app_of(catalog, org), an_app_of(catalog, org)
        (key,) = catalog.keys.all_of(one.app_id)
        catalog.keys.mint(one.app_id, a_key(), let_pass)
        catalog.keys.revoke(one.app_id, key.key_id)
        catalog.tokens.revoke(mint_token(catalog, a_token(org)).token_id)
        mint_token(catalog, a_token(org))
        everything = Tally(2, 2, 3, 1, 2, 1, 2, frozenset(Scope))
        assert self.seen(catalog, org, app=one) == everything
        assert self.seen(catalog, org, app=two) == replace(everything, app_keys=1, app_keys_in_all=1)
        assert self.seen(catalog, org) == replace(everything, app_keys=0, app_keys_in_all=0)

    def test_the_tally_has_the_current_scopes_of_the_minter(self, catalog, org, ann):
        app = an_app_of(catalog, org)
        token = mint_token(catalog, a_token(org, scopes=[Scope.KEYS_WRITE]))

        def scopes(minter):
            return self.seen(catalog, org, minter, app).minter_scopes

        assert scopes(ann.user_id) == scopes_of(Role.DEVELOPER)
        assert scopes(token.token_id) == {Scope.KEYS_WRITE}
        catalog.users.change_role(org.org_id, ann.user_id, Role.VIEWER, let_pass, lambda _minted: Minted())
        assert scopes(ann.user_id) == scopes_of(Role.VIEWER)
        catalog.users.remove(org.org_id, ann.user_id, let_pass, lambda _minted: Minted())
        catalog.tokens.revoke(token.token_id)
        assert scopes(ann.user_id) == scopes(token.token_id) == scopes("usr_unknown") == frozenset()

    def test_of_many_concurrent_requests_for_the_last_one_only_one_mints(self, catalog, org):
        app = an_app_of(catalog, org)

        def at_most_three(tally):
            if tally.app_keys >= 3:
                raise LookupError

        def mint_some():
            for _ in range(3):
                try:
                    catalog.keys.mint(app.app_id, a_key(), at_most_three)
                except LookupError:
                    return

        in_parallel(mint_some)
        assert len(catalog.keys.all_of(app.app_id)) == 3
