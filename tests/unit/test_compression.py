import gzip

import pytest
from starlette.responses import Response

from mauve.web.app import compressed

PAGE = Response(b"<p>words and words" * 500, headers={"content-type": "text/html"})


@pytest.mark.parametrize("accepted", ["gzip", "gzip, deflate, br", "br, GZIP;q=0.5", "deflate, gzip;q=1.0", "br,gzip"])
def test_a_client_that_accepts_gzip_gets_it(accepted):
    response = compressed(PAGE, accepted)
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["content-type"] == "text/html"
    assert gzip.decompress(response.body) == PAGE.body
    assert response.headers["content-length"] == str(len(response.body))
    assert len(response.body) < len(PAGE.body) / 10


@pytest.mark.parametrize("accepted", ["", "br", "gzip;q=0", "gzip;q=0.0, br", "gzipped", "x-gzip2"])
def test_a_client_that_does_not_gets_the_page_uncompressed(accepted):
    response = compressed(PAGE, accepted)
    assert response.body == PAGE.body
    assert "content-encoding" not in response.headers


def test_the_vary_header_names_the_encoding():
    assert compressed(PAGE, "gzip").headers["vary"] == compressed(PAGE, "").headers["vary"] == "accept-encoding"


def test_a_short_response_is_not_compressed():
    short = Response(status_code=303, headers={"location": "/"})
    assert compressed(short, "gzip") == short
