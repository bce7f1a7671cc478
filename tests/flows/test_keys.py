import re

import pytest


@pytest.fixture
def app(api):
    return api.post("/v1/apps", json={"name": "An app"}).json()


def keys_of(api, app):
    return api.get(f"/v1/apps/{app['app_id']}/keys").json()


@pytest.mark.parametrize("kind", ["sk", "pk"])
def test_a_minted_key_is_shown_once_and_listed_masked(api, app, clock, kind):
    clock.advance(1)
    reply = api.post(f"/v1/apps/{app['app_id']}/keys", json={"kind": kind})
    assert reply.status_code == 201
    minted = reply.json()
    assert set(minted) == {"key_id", "key"}
    assert re.fullmatch(rf"{kind}_live_[0-9A-Za-z]{{40}}", minted["key"])
    listed = keys_of(api, app)[-1]
    assert isinstance(listed.pop("mirrored_at"), int)  # by the clock of the database
    assert listed == {
        "key_id": minted["key_id"],
        "kind": kind,
        "masked": f"{minted['key'][:12]}…{minted['key'][-4:]}",
        "revoked": False,
        "created_at": clock.now_ms(),
    }


def test_the_first_key_of_an_app_is_listed(api, app):
    (key,) = keys_of(api, app)
    assert key["kind"] == "sk"
    assert key["masked"] == f"{app['sk_key'][:12]}…{app['sk_key'][-4:]}"


@pytest.mark.embedded  # refused before an engine is asked
@pytest.mark.parametrize("body", [{}, {"kind": "ctl"}, {"kind": None}, {"kind": ""}, {"kind": 1}, {"kind": ["sk"]}])
def test_an_unknown_kind_is_refused_and_mints_nothing(api, app, body):
    reply = api.post(f"/v1/apps/{app['app_id']}/keys", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_body")
    assert len(keys_of(api, app)) == 1


def test_a_revoked_key_stays_listed_and_stops_working(api, app, keyring):
    (key,) = keys_of(api, app)
    assert keyring.key_for(app["sk_key"]) is not None
    reply = api.delete(f"/v1/apps/{app['app_id']}/keys/{key['key_id']}")
    assert (reply.status_code, reply.content) == (204, b"")
    assert "content-type" not in reply.headers
    (listed,) = keys_of(api, app)
    assert listed["revoked"] is True
    assert listed["mirrored_at"] is not None
    keyring.refresh()
    assert keyring.key_for(app["sk_key"]) is None


def test_revoking_again_succeeds_and_changes_nothing(api, app, clock):
    (key,) = keys_of(api, app)
    path = f"/v1/apps/{app['app_id']}/keys/{key['key_id']}"
    api.delete(path)
    before = keys_of(api, app)
    clock.advance(1000)
    reply = api.delete(path)
    assert (reply.status_code, reply.content) == (204, b"")
    assert keys_of(api, app) == before


def test_the_key_of_a_sibling_app_is_not_found_and_not_revoked(api, app):
    sibling = api.post("/v1/apps", json={"name": "Sibling"}).json()
    (key,) = keys_of(api, sibling)
    reply = api.delete(f"/v1/apps/{app['app_id']}/keys/{key['key_id']}")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")
    assert keys_of(api, sibling)[0]["revoked"] is False
