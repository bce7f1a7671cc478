"""The documentation site is served if it was built, and `/llms.txt` in any case."""

import pytest
from starlette.testclient import TestClient

from mauve.openapi.routes import documentation_routes, overview_for_programs
from mauve.web.app import JsonResponse, starlette_app


async def refuse(request, error):
    return JsonResponse({}, 404)


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    (folder / "quickstarts").mkdir(parents=True)
    (folder / "index.html").write_text("<title>Home</title>")
    (folder / "quickstarts/curl.md").write_text("# curl")
    (tmp_path / "secret").write_text("not a page")
    return folder


@pytest.fixture
def client(site):
    return TestClient(starlette_app(documentation_routes(site), refuse))


def test_a_page_is_served_with_a_policy_that_allows_no_other_host(client):
    reply = client.get("/docs/index.html")
    assert (reply.status_code, reply.text) == (200, "<title>Home</title>")
    assert reply.headers["content-security-policy"].startswith("default-src 'self' data: blob:;")
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_a_client_with_the_current_page_gets_304(client):
    etag = client.get("/docs/index.html").headers["etag"]
    reply = client.get("/docs/index.html", headers={"if-none-match": etag})
    assert (reply.status_code, reply.content) == (304, b"")


def test_the_source_of_a_page_is_served_as_text(client):
    reply = client.get("/docs/quickstarts/curl.md")
    assert (reply.text, reply.headers["content-type"]) == ("# curl", "text/markdown; charset=utf-8")


OUTSIDE = ["/docs/", "/docs/quickstarts", "/docs/../secret", "/docs/%2e%2e/secret", "/docs//index.html"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_only_files_of_the_site_are_served(client, path):
    assert client.get(path).status_code == 404


def test_without_a_built_site_there_are_no_routes_and_no_links_to_pages(tmp_path):
    absent = tmp_path / "absent"
    assert documentation_routes(absent) == []
    text = overview_for_programs(absent).decode()
    assert "](/docs)" in text
    assert "](/openapi.json)" in text
    assert "/docs/" not in text
    assert "## Start here" not in text


def test_with_a_built_site_pages_are_listed(site):
    assert "](/docs/tutorial.md)" in overview_for_programs(site).decode()
