"""Credentials, scopes, and refusals that do not reveal what exists."""

import pytest

from mauve.access import tokens
from mauve.control import operator
from mauve.core.credential import Scope
from mauve.core.ids import SystemRandomness

pytestmark = pytest.mark.shared_service

UNKNOWN_PARAMETERS = "ignored unknown query parameters"
PER_OPERATION = [
    ("POST", "/v1/apps", Scope.APPS_WRITE),
    ("GET", "/v1/apps", Scope.APPS_READ),
    ("GET", "/v1/apps/{app}", Scope.APPS_READ),
    ("PATCH", "/v1/apps/{app}", Scope.APPS_WRITE),
    ("POST", "/v1/apps/{app}/keys", Scope.KEYS_WRITE),
    ("GET", "/v1/apps/{app}/keys", Scope.KEYS_READ),
    ("DELETE", "/v1/apps/{app}/keys/{key}", Scope.KEYS_WRITE),
    ("PUT", "/v1/apps/{app}/webhooks/biller_a", Scope.WEBHOOKS_WRITE),
]
BODY = {"name": "Changed", "kind": "sk", "secret": "x"}
SUCCESS = {"POST": 201, "GET": 200, "PATCH": 200, "DELETE": 204, "PUT": 204}


@pytest.fixture
def app(api):
    return api.post("/v1/apps", json={"name": "An app"}).json()


@pytest.fixture
def key(api, app):
    return api.get(f"/v1/apps/{app['app_id']}/keys").json()[0]


@pytest.fixture
def sent(client, parts):
    """Send an operation with exactly the given scopes, in the given organization."""

    def send(org_id, scopes, method, path):
        token = operator.mint_token(parts, org_id, "t", scopes)[1].reveal()
        return client.request(method, path, json=BODY, headers={"authorization": f"Bearer {token}"})

    return send


@pytest.mark.parametrize(("method", "path", "scope"), PER_OPERATION)
def test_an_operation_needs_its_own_scope_and_no_other_implies_it(sent, organization, app, key, method, path, scope):
    path = path.format(app=app["app_id"], key=key["key_id"])
    without = sent(organization.org_id, set(Scope) - {scope}, method, path)
    assert (without.status_code, without.json()["error"]["code"]) == (403, "insufficient_scope")
    assert sent(organization.org_id, {scope}, method, path).status_code == SUCCESS[method]


@pytest.mark.parametrize(("method", "path", "scope"), PER_OPERATION[2:])
def test_foreign_missing_and_malformed_ids_get_the_same_404(sent, parts, app, key, method, path, scope):
    stranger = operator.create_organization(parts, "Stranger").org_id
    replies = [
        sent(stranger, {scope}, method, path.format(app=app_id, key=key["key_id"]))
        for app_id in (app["app_id"], "app_00000000000000000000", "nonsense", "a" * 3000, "%00", "..%2f..", "é")
    ]
    assert {reply.status_code for reply in replies} == {404}
    assert len({reply.content for reply in replies}) == 1
    assert len({tuple(sorted(reply.headers.items())) for reply in replies}) == 1
    assert replies[0].json()["error"]["code"] == "not_found"


def test_missing_and_malformed_key_ids_get_the_same_404(api, app):
    base = f"/v1/apps/{app['app_id']}/keys"
    replies = [api.delete(f"{base}/{key}") for key in ("key_00000000000000000000", "nonsense", "k" * 3000, "%00")]
    replies.append(api.get("/v1/apps/app_00000000000000000000"))
    assert {(reply.status_code, reply.content) for reply in replies} == {(404, replies[0].content)}


def test_every_bad_credential_gets_the_identical_401(client, parts, organization, app):
    revoked_id, revoked = operator.mint_token(parts, organization.org_id, "t", Scope)
    operator.revoke_token(parts, revoked_id)
    good = operator.mint_token(parts, organization.org_id, "t", Scope)[1].reveal()
    unknown = tokens.mint(SystemRandomness())[0].reveal()
    headers = [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": f"Basic {good}"},
        {"authorization": good},
        {"authorization": f"Bearer {good}x"},
        {"authorization": f"Bearer {good[:-1]}"},
        {"authorization": f"Bearer {good[:-1]}!"},
        {"authorization": f"Bearer {good}, Bearer {good}"},
        {"authorization": f"Bearer {good.upper()}"},
        {"authorization": f"Bearer {good[:25]}{'0' * 40}"},
        {"authorization": f"Bearer {unknown}"},
        {"authorization": f"Bearer {revoked.reveal()}"},
        {"authorization": f"Bearer {app['sk_key']}"},
        {"authorization": f"Bearer {good.replace('ctl_live_', 'ctl_test_')}"},
        {"authorization": "Bearer " + "x" * 10_000},
        {"authorization": "Bearer \xff\xfe".encode("latin-1")},
    ]
    del client.headers["authorization"]
    replies = [client.get("/v1/apps", headers=each) for each in headers]
    assert {reply.status_code for reply in replies} == {401}
    assert len({reply.content for reply in replies}) == 1
    assert len({tuple(sorted(reply.headers.items())) for reply in replies}) == 1
    assert replies[0].headers["www-authenticate"] == 'Bearer realm="service"'
    assert replies[0].json()["error"]["code"] == "unauthorized"


def test_the_scheme_is_not_case_sensitive(client, token):
    assert client.get("/v1/apps", headers={"authorization": f"bEARER {token}"}).status_code == 200


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize("path", ["/v1/apps/", "/v1/apps/{app}/", "/v1/apps/{app}/keys/", "/v1/apps/{app}/nope"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_deeper_paths_and_trailing_slashes_are_404(api, app, method, path):
    reply = api.request(method, path.format(app=app["app_id"]), json=BODY)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize(
    "path",
    [
        "/v1/apps/{app}/keys/{key}/more",
        "/v1/apps/{app}/webhooks/biller_a/more",
        "/v1/apps//keys",
        "/v1/apps/a%0Ab",
    ],
)
def test_other_paths_below_apps_are_404(api, app, key, path):
    reply = api.get(path.format(app=app["app_id"], key=key["key_id"]))
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.embedded  # refused before an engine is asked
def test_an_escaped_slash_or_line_feed_does_not_reach_another_operation(api, app):
    assert api.get(f"/v1/apps/{app['app_id']}%2fkeys").status_code == 404
    assert api.get(f"/v1/apps/{app['app_id']}/keys%0A").status_code == 404


def test_unknown_parameters_are_accepted_and_named(api, client, app):
    for path, status in (("/v1/apps", 200), (f"/v1/apps/{app['app_id']}", 200), ("/v1/apps/app_x", 404)):
        reply = api.get(path, params={"limit": "5"})
        assert (reply.status_code, reply.headers["x-service-hint"]) == (status, f"{UNKNOWN_PARAMETERS}: limit")
    assert "x-service-hint" not in api.get("/v1/apps").headers
    refused = client.get("/v1/apps", params={"limit": "5"}, headers={"authorization": "Bearer ctl_live_x"})
    assert (refused.status_code, "x-service-hint" in refused.headers) == (401, False)


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize(("method", "path"), [("DELETE", "/v1/apps"), ("PUT", "/v1/apps"), ("OPTIONS", "/v1/apps")])
def test_a_method_that_is_not_in_the_contract_is_404(api, method, path):
    assert api.request(method, path).status_code == 404


class TestOrderOfRefusals:
    """401, then 404 for the route, then 403, then 404 for the app, then 400."""

    def test_an_unknown_route_without_a_token_is_401(self, client):
        assert client.get("/v1/apps/a/b/c/d").status_code == 401

    def test_an_unknown_route_with_a_token_without_scope_is_404(self, sent, organization):
        assert sent(organization.org_id, {Scope.METRICS_READ}, "GET", "/v1/apps/a/b/c/d").status_code == 404

    def test_a_missing_app_without_the_scope_is_403(self, sent, organization):
        path = "/v1/apps/app_00000000000000000000"
        assert sent(organization.org_id, {Scope.METRICS_READ}, "GET", path).status_code == 403

    def test_a_missing_app_with_a_bad_body_is_404(self, api):
        assert api.patch("/v1/apps/app_00000000000000000000", content=b"{").status_code == 404

    def test_a_huge_body_without_a_token_is_401(self, client):
        assert client.post("/v1/apps", content=b"x" * 2_000_000).status_code == 401


def test_one_organization_does_not_see_the_apps_of_another(sent, parts, app):
    stranger = operator.create_organization(parts, "Stranger").org_id
    assert sent(stranger, {Scope.APPS_READ}, "GET", "/v1/apps").json() == []


def test_a_foreign_app_is_not_changed(sent, api, parts, app, key):
    stranger = operator.create_organization(parts, "Stranger").org_id
    before = api.get(f"/v1/apps/{app['app_id']}").json()
    for method, path, scope in PER_OPERATION[2:]:
        sent(stranger, {scope}, method, path.format(app=app["app_id"], key=key["key_id"]))
    assert api.get(f"/v1/apps/{app['app_id']}").json() == before
    assert api.get(f"/v1/apps/{app['app_id']}/keys").json() == [key]
