"""Bad input gets the contract's error and changes nothing."""

import json

import pytest

OPERATIONS_WITH_A_BODY = [
    ("POST", "/v1/apps"),
    ("PATCH", "/v1/apps/{app}"),
    ("POST", "/v1/apps/{app}/keys"),
    ("PUT", "/v1/apps/{app}/webhooks/biller_b"),
]
GOOD = {"name": "New", "type": "other", "kind": "sk", "secret": "s"}
BAD_BODIES = {
    "empty": b"",
    "not JSON": b"name=New",
    "cut off": b'{"name": "New", "kind": "sk", "secret": "s"',
    "an array": json.dumps([GOOD]).encode(),
    "a string": b'"name"',
    "null": b"null",
    "a number": b"1",
    "NaN": b'{"name": NaN, "kind": NaN, "secret": NaN}',
    "trailing text": json.dumps(GOOD).encode() + b"x",
    "invalid UTF-8 in a field": b'{"name": "\xff", "kind": "\xff", "secret": "\xff"}',
    "invalid UTF-8 in an ignored field": b'{"x": "\xff", ' + json.dumps(GOOD).encode()[1:],
    "UTF-16": json.dumps(GOOD).encode("utf-16"),
    "a lone surrogate": rb'{"name": "\ud800", "kind": "\ud800", "secret": "\ud800"}',
    "a nesting bomb": b"[" * 60_000,
    "a nested object bomb": b'{"name":' * 8_000,
    "64 KiB and more": b'{"name": "New", "kind": "sk", "secret": "' + b"s" * 66_000 + b'"}',
    "2 MB": b" " * 2_000_000 + json.dumps(GOOD).encode(),
}


@pytest.fixture
def app(api):
    return api.post("/v1/apps", json={"name": "An app"}).json()


def everything(api, app):
    return api.get("/v1/apps").json(), api.get(f"/v1/apps/{app['app_id']}/keys").json()


@pytest.mark.parametrize(("method", "path"), OPERATIONS_WITH_A_BODY)
def test_a_bad_body_is_a_400_that_changes_nothing(api, app, method, path):
    before = everything(api, app)
    for what, body in BAD_BODIES.items():
        reply = api.request(method, path.format(app=app["app_id"]), content=body)
        assert reply.status_code == 400, what
        assert set(reply.json()) == {"error"}, what
        assert set(reply.json()["error"]) == {"code", "message"}, what
        assert reply.json()["error"]["code"] == "invalid_body", what
        assert everything(api, app) == before, what


def test_a_refused_value_is_not_echoed(api, app):
    canary = "whsec_canary_in_the_wrong_place"
    replies = [
        api.post(f"/v1/apps/{app['app_id']}/keys", json={"kind": canary}),
        api.post("/v1/apps", json={"name": "a", "type": f"{canary} - at {canary}"}),
        api.put(f"/v1/apps/{app['app_id']}/webhooks/biller_a", json={"secret": {canary: canary}}),
        api.put(f"/v1/apps/{app['app_id']}/webhooks/biller_a", json={"secret": "s", "environment": canary}),
        api.get(f"/v1/apps/{canary}"),
    ]
    assert {reply.status_code for reply in replies} == {400, 404}
    assert not any(canary in reply.text for reply in replies)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_the_control_plane_ignores_the_content_type(api, content_type):
    headers = {} if content_type is None else {"content-type": content_type}
    assert api.post("/v1/apps", content=b'{"name": "New"}', headers=headers).status_code == 201
