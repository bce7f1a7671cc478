"""Ending a credential succeeds only once every machine can know of it; a new one is waited for, but not forever."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from mauve.control.publish import Publisher, UnpublishedRevocation

from mauve.control import apps, keys, operator, people, publish, webhook_secrets
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.credential import KeyKind, Scope
from mauve.core.secret import Secret
from mauve.core.user import Role
from mauve.stores import StoreUnavailableError
from mauve.stores.catalog import Minted
from mauve.stores.published import PublishedKey
from support.service import PATIENCE_S, eventually

WEBHOOK_SECRET = Secret("whsec_" + "a" * 32)


class Edge:
    """Stores records, unless it is told to fail; may be held."""

    def __init__(self, edge_id):
        self._edge_id = edge_id
        self.failure = None
        self.published = []
        self.is_free = threading.Event()
        self.is_free.set()

    def publish(self, records):
        assert self.is_free.wait(PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        self.published += records
        return self._edge_id

    def edge_id(self):
        return self._edge_id


@pytest.fixture
def edge(parts):
    parts.publisher.refill_if_lost()
    return Edge(parts.catalog.publications.edge_id())


@pytest.fixture
def with_edge(parts, edge):
    with closing(Publisher(parts.catalog, edge, parts.clock)) as publisher:
        yield dataclasses.replace(parts, publisher=publisher)


@pytest.fixture
def app(api, parts):
    created = api.post("/v1/apps", json={"name": "An app"}).json()
    return parts.catalog.apps.find_anywhere(created["app_id"])


@pytest.fixture
def owner(parts, organization):
    return people.create_user(parts, organization.org_id, "owner@example.com", Role.OWNER)[0]


@pytest.fixture
def member(parts, organization, app):
    """Return a member who has minted a key."""
    user, _ = people.create_user(parts, organization.org_id, "member@example.com", Role.ADMIN)
    keys.mint_key(parts, app, KeyKind.SERVER, Environment.LIVE, user.user_id)
    return user


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(publish, "_REVOCATION_PATIENCE_S", 0.3)


def everything(minted):
    return minted


def nothing(_):
    return Minted((), ())


@pytest.fixture
def endings(parts, organization, app, owner, member):
    """Return the changes that end a credential, by name."""
    (key, *_) = keys.list_keys(parts, app)
    token_id, _ = operator.mint_token(parts, organization.org_id, "another", Scope)
    live, biller = Environment.LIVE, Provider.BILLER_A
    webhook_secrets.save_secret(parts, app, live, biller, WEBHOOK_SECRET)
    return {
        "key": lambda parts: keys.revoke_key(parts, app, key.key_id),
        "token": lambda parts: operator.revoke_token(parts, token_id),
        "secret": lambda parts: webhook_secrets.save_secret(parts, app, live, biller, Secret("whsec_" + "b" * 32)),
        "role": lambda parts: people.change_role(parts, owner, member.user_id, Role.VIEWER, everything),
        "member": lambda parts: people.remove_member(parts, owner, member.user_id, everything),
        "app": lambda parts: apps.archive_app(parts, app),
        "organization": lambda parts: operator.suspend(parts, organization.org_id),
    }


ENDINGS = ("key", "token", "secret", "role", "member", "app", "organization")


@pytest.mark.parametrize("name", ENDINGS)
def test_what_could_not_be_published_is_stored_and_reported(endings, with_edge, edge, parts, impatient, name):
    edge.failure = StoreUnavailableError("away")
    with pytest.raises(UnpublishedRevocation, match="the change is stored"):
        endings[name](with_edge)
    assert parts.catalog.publications.pending(10) != []


@pytest.mark.parametrize("name", ENDINGS)
def test_success_means_that_it_is_published(endings, with_edge, edge, parts, name):
    endings[name](with_edge)
    assert edge.published != []
    assert parts.catalog.publications.pending(10) == []


def test_a_change_of_role_that_ends_no_credential_needs_no_edge(with_edge, edge, parts, owner, member, impatient):
    edge.failure = StoreUnavailableError("away")
    people.change_role(with_edge, owner, member.user_id, Role.VIEWER, nothing)
    assert parts.catalog.users.find(member.user_id).user.role is Role.VIEWER


def test_an_unexpected_error_is_no_success(endings, with_edge, edge, impatient):
    edge.failure = ZeroDivisionError()
    with pytest.raises(UnpublishedRevocation):
        endings["key"](with_edge)


@pytest.fixture
def many(parts, app):
    return [keys.mint_key(parts, app, KeyKind.SERVER, Environment.LIVE)[0] for _ in range(6)]


def test_of_many_revocations_at_once_none_succeeds_while_the_edge_is_away(with_edge, edge, app, many, impatient):
    edge.failure = StoreUnavailableError("away")

    def outcome(key_id):
        try:
            keys.revoke_key(with_edge, app, key_id)
        except UnpublishedRevocation:
            return "unpublished"

    with ThreadPoolExecutor(len(many)) as pool:
        assert list(pool.map(outcome, many)) == ["unpublished"] * len(many)


def test_revocations_at_once_share_a_publication(with_edge, edge, app, many, monkeypatch):
    monkeypatch.setattr(publish, "_PATIENT_MAX", len(many))
    monkeypatch.setattr(publish, "_REVOCATION_PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(publish, "_PATIENCE_S", PATIENCE_S)
    rounds = []
    monkeypatch.setattr(edge, "publish", lambda records, store=edge.publish: rounds.append(1) or store(records))

    def revoke(key_id):
        keys.revoke_key(with_edge, app, key_id)
        return {record.key_id for record in edge.published}

    edge.is_free.clear()
    with ThreadPoolExecutor(len(many)) as pool:
        revoking = {key_id: pool.submit(revoke, key_id) for key_id in many}
        eventually(lambda: all(key.revoked for key in keys.list_keys(with_edge, app) if key.key_id in many))
        assert not any(each.done() for each in revoking.values())
        edge.is_free.set()
        for key_id, each in revoking.items():
            assert key_id in each.result()
    assert len(rounds) <= 3, "the one that was held, and those after it"


def test_the_api_says_that_a_revocation_is_stored_and_a_retry_succeeds(api, parts, app, edge, impatient, monkeypatch):
    (key,) = keys.list_keys(parts, app)
    path = f"/v1/apps/{app.app_id}/keys/{key.key_id}"
    with monkeypatch.context() as away:
        away.setattr(parts.publisher, "_edge", edge)
        edge.failure = StoreUnavailableError("away")
        reply = api.delete(path)
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_unavailable")
    assert "the change is stored" in reply.json()["error"]["message"]
    assert int(reply.headers["retry-after"]) > 0
    assert keys.list_keys(parts, app)[0].revoked
    assert api.delete(path).status_code == 204
    assert keys.list_keys(parts, app)[0].mirrored_at is not None


def test_a_new_key_is_returned_once_it_is_published_even_if_that_is_slow(with_edge, edge, app, monkeypatch):
    monkeypatch.setattr(publish, "_PATIENCE_S", 0.001)  # of the callers beyond those that wait
    edge.is_free.clear()
    with ThreadPoolExecutor(1) as pool:
        minting = pool.submit(keys.mint_key, with_edge, app, KeyKind.SERVER, Environment.LIVE)
        eventually(lambda: len(keys.list_keys(with_edge, app)) == 2)
        assert not minting.done()
        edge.is_free.set()
        key_id, _ = minting.result()
    assert key_id in {record.key_id for record in edge.published if isinstance(record, PublishedKey)}


def test_a_new_key_is_returned_even_if_the_edge_never_answers(with_edge, edge, app, monkeypatch):
    monkeypatch.setattr(publish, "_PATIENCE_S", 0.001)
    monkeypatch.setattr(publish, "_CHANGE_PATIENCE_S", 0.001)
    edge.is_free.clear()
    key_id, _ = keys.mint_key(with_edge, app, KeyKind.SERVER, Environment.LIVE)
    assert {key.key_id for key in keys.list_keys(with_edge, app) if key.mirrored_at is None} == {key_id}
    edge.is_free.set()
