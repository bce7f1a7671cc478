"""Metrics read from the real processes, while they load, and after they were started again."""

import httpx2 as httpx
import pytest

from support import bearer, eventually, mauve_json, running, token_for

NO_CACHE = {"MAUVE_READ_CACHE_SECONDS": "0"}


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def read(service, metric, credential, **parameters):
    return httpx.get(f"{service.url}/v1/metrics/{metric}", params=parameters, headers=bearer(credential))


def test_what_is_sent_can_soon_be_read_and_still_after_a_restart(data):
    with running(data, "--workers", "1", environment=NO_CACHE) as service:
        token = token_for(data)
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token)).json()
        key = app["sk_key"]
        assert read(service, "mau", key).json()["data"] == [{"mau": 0}]
        events = [
            {"name": "view", "user": "ann"},
            {"name": "payment", "id": "1", "props": {"amount": 5, "currency": "eur"}},
            {"name": "user_signup", "user": "bob"},
        ]
        assert httpx.post(f"{service.ingest_url}/v1/events", json=events, headers=bearer(key)).status_code == 202
        eventually(lambda: read(service, "mau", key).json()["data"] == [{"mau": 2}])
        assert [row["revenue"] for row in read(service, "revenue", key).json()["data"]] == [5]
    with running(data, "--workers", "1") as service:
        by_token = read(service, "event_names", token, project=app["public_id"])
        assert by_token.json()["data"] == [{"name": "user_signup", "count": 1}, {"name": "view", "count": 1}]
        assert by_token.headers["x-cache"] == "miss"
        by_key = read(service, "event_names", key)
        assert (by_key.content, by_key.headers["x-cache"]) == (by_token.content, "hit")
    with running(data, "--workers", "1") as service:
        assert read(service, "event_names", key).headers["x-cache"] == "hit", "the cache outlives a restart"


def test_a_token_that_is_minted_reads_at_once_and_a_revoked_one_soon_no_more(data):
    with running(data, "--workers", "1") as service:
        token = token_for(data, "apps:write,apps:read")
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token)).json()
        org = mauve_json(data, "org", "list")[0]["org_id"]
        minted = mauve_json(data, "token", "mint", "--org", org, "--scopes", "metrics:read")
        assert read(service, "mau", minted["token"], project=app["public_id"]).status_code == 200
        mauve_json(data, "token", "revoke", minted["token_id"])
        eventually(lambda: read(service, "mau", minted["token"], project=app["public_id"]).status_code == 401)
