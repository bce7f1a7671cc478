"""Serving the API reference."""

import pytest

from mauve.openapi.document import document

PATHS = ["/openapi.json", "/docs", "/llms.txt"]


def test_the_document_is_served_as_it_was_made(client):
    reply = client.get("/openapi.json")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == document()


def test_the_page_is_public_and_its_policy_forbids_scripts(client):
    reply = client.get("/docs")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("given", ["{}", "W/{}", '"other", {}', "*"])
def test_a_client_with_the_current_version_gets_304(client, path, given):
    etag = client.get(path).headers["etag"]
    reply = client.get(path, headers={"if-none-match": given.format(etag)})
    assert (reply.status_code, reply.content) == (304, b"")
    assert reply.headers["etag"] == etag


@pytest.mark.parametrize("path", PATHS)
def test_a_client_with_another_version_gets_this_one(client, path):
    reply = client.get(path, headers={"if-none-match": '"other"'})
    assert reply.status_code == 200
    assert reply.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", PATHS)
def test_the_reference_accepts_only_get_and_head(client, path):
    assert client.head(path).status_code == 200
    reply = client.post(path)
    assert (reply.status_code, reply.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/docs/", "/openapi.json/", "/docs/x", "/openapi.yaml"])
def test_near_misses_of_the_reference_are_404(client, path):
    assert client.get(path).status_code == 404


def test_the_examples_use_the_address_that_the_client_used(client):
    reply = client.get("/docs", headers={"host": "metrics.example:8123"})
    assert "URL=http://metrics.example:8123  #" in reply.text
    assert reply.headers["etag"] != client.get("/docs").headers["etag"]


@pytest.mark.parametrize("host", ["<script>", "a$(id)", "a`id`", "q w", "x" * 300])
def test_a_strange_address_is_not_repeated(client, host):
    reply = client.get("/docs", headers={"host": host})
    assert reply.status_code in {200, 400}
    assert host not in reply.text
