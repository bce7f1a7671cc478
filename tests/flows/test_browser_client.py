"""`/mauve.js`, the client for web pages, as both ports serve it."""

import gzip
import hashlib
from pathlib import Path

import httpx2 as httpx
import pytest

import mauve
from mauve.web.browser_client import shortened
from support.service import running

SOURCE = Path(mauve.__file__).parent / "web/static/mauve.js"
SERVED = shortened(SOURCE.read_text("utf-8")).encode()
COMPRESSED_BYTES_MAX = 2048
PLAIN = {"accept-encoding": "identity"}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("client") / "data", "--workers", "1") as started:
        yield started


@pytest.fixture(params=["url", "ingest_url"])
def url(service, request):
    return getattr(service, request.param)


def hashed_name():
    return f"/mauve.{hashlib.sha256(SERVED).hexdigest()[:12]}.js"


def raw_body(url, headers):
    """Return the body as it came over the network."""
    with httpx.stream("GET", url, headers=headers) as reply:
        return b"".join(reply.iter_raw())


def test_no_literal_or_comment_of_the_file_spans_lines():
    source = SOURCE.read_text("utf-8")
    assert all(line.count("`") % 2 == 0 for line in source.splitlines())
    assert not any(line.strip().startswith(("/*", "*")) for line in source.splitlines())
    assert "\\\n" not in source


def test_only_comment_lines_and_needless_spaces_and_line_ends_are_left_out():
    source = '(() => {\n  // A comment.\n\n  const url = "a = b"; // It stays;\n  if (url)\n  f(\n  url);\n})()\n'
    assert shortened(source) == '(()=>{const url="a = b";// It stays;\nif(url)\nf(url);})()\n'


def test_literals_and_divisions_stay_as_they_are():
    literals = ['"a, b : c"', "`a ? ${b} : c`", r"/^a{1}\/[=]$/"]
    source = [f"x = {literal} && y;\n" for literal in literals]
    assert [shortened(line) for line in source] == [f"x={literal}&&y;" for literal in literals]
    assert shortened("x = (a + +b) / c - -d / e;\n") == "x=(a + +b)/ c - -d / e;"


def test_the_file_is_served_to_pages_of_any_origin(url):
    reply = httpx.get(f"{url}/mauve.js", headers=PLAIN)
    assert reply.status_code == 200
    assert reply.content == SERVED
    assert reply.headers["content-type"] == "text/javascript; charset=utf-8"
    assert reply.headers["access-control-allow-origin"] == "*"
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_a_page_that_a_person_opens_is_the_file_too(url):
    reply = httpx.get(f"{url}/mauve.js", headers={"accept": "text/html,*/*"})
    assert reply.content == SERVED


def test_it_takes_at_most_2048_bytes_compressed(url):
    body = raw_body(f"{url}/mauve.js", {"accept-encoding": "gzip, deflate, br"})
    assert gzip.decompress(body) == SERVED
    assert len(body) <= COMPRESSED_BYTES_MAX


def test_its_plain_name_is_cached_briefly_and_the_name_with_its_hash_forever(url):
    plain, hashed = (httpx.get(url + path) for path in ("/mauve.js", hashed_name()))
    assert plain.headers["cache-control"] == "public, max-age=300"
    assert hashed.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert hashed.content == plain.content
    assert plain.headers["vary"] == hashed.headers["vary"] == "accept-encoding"


def test_a_browser_that_has_it_gets_304(url):
    for encoding in ("gzip", "identity"):
        asked = {"accept-encoding": encoding}
        tag = httpx.get(f"{url}/mauve.js", headers=asked).headers["etag"]
        again = httpx.get(f"{url}/mauve.js", headers=asked | {"if-none-match": f'"other", W/{tag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert again.headers["access-control-allow-origin"] == "*"
        assert httpx.get(f"{url}/mauve.js", headers=asked | {"if-none-match": "*"}).status_code == 304
    gzipped, plain = (httpx.get(f"{url}/mauve.js", headers={"accept-encoding": name}) for name in ("gzip", "identity"))
    assert gzipped.headers["etag"] != plain.headers["etag"]


def test_a_connection_goes_on_after_304_and_head(url):
    with httpx.Client(base_url=url, headers=PLAIN) as client:
        tag = client.get("/mauve.js").headers["etag"]
        assert client.get("/mauve.js", headers={"if-none-match": tag}).status_code == 304
        head = client.head("/mauve.js")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) == len(SERVED)
        assert client.get("/mauve.js").content == SERVED


def test_other_methods_and_other_names_are_refused(url):
    refused = httpx.post(f"{url}/mauve.js", json={})
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    for name in ("mauve.0123456789a.js", "mauve.0123456789xy.js", "mauve.0123456789ab.css", "mauve..js"):
        assert httpx.get(f"{url}/{name}").status_code == 404


def test_a_name_of_another_version_answers_this_one_and_is_cached_briefly(url):
    current, other = (httpx.get(url + path) for path in (hashed_name(), "/mauve.0123456789ab.js"))
    assert (other.status_code, other.content) == (200, current.content)
    assert other.headers["cache-control"] == "public, max-age=300"
    tag = other.headers["etag"]
    again = httpx.get(f"{url}/mauve.0123456789ab.js", headers={"if-none-match": tag})
    assert (again.status_code, again.headers["cache-control"]) == (304, "public, max-age=300")
