"""What the ingest plane answers for now: health, and 401 to strangers."""

import pytest


@pytest.mark.parametrize("path", ["/v1/events", "/v1/objects"])
def test_a_stranger_gets_401_in_the_data_envelope(client, path):
    reply = client.post(path, json=[])
    assert reply.status_code == 401
    assert reply.json() == {"ok": False, "error": "unauthorized"}


def test_a_control_token_is_no_data_plane_key(api):
    assert api.post("/v1/events", json=[]).status_code == 401


def test_nothing_is_said_to_be_stored_that_is_not(api):
    key = api.post("/v1/apps", json={"name": "An app"}).json()["sk_key"]
    reply = api.post("/v1/events", json=[], headers={"authorization": f"Bearer {key}"})
    assert reply.status_code == 503
    assert reply.json()["ok"] is False


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_another_method_is_405_and_says_which_is_allowed(client, method):
    reply = client.request(method, "/v1/events")
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    assert reply.json()["ok"] is False


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/appsx", "/v1/events/", "/favicon.ico"])
def test_an_unknown_path_is_404_in_the_data_envelope(client, path):
    reply = client.get(path)
    assert reply.status_code == 404
    assert reply.json()["ok"] is False


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_read_and_not_written(client, path):
    assert client.head(path).status_code == 200
    reply = client.post(path)
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET")


def test_health_and_readiness(client):
    assert client.get("/healthz").json() == {"ok": True}
    reply = client.get("/readyz")
    assert (reply.status_code, reply.json()) == (200, {"ok": True, "engines": {"catalog": "ok", "edge": "ok"}})
