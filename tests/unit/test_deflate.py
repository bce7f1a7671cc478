import gzip

import pytest

from mauve.web.deflate import deflated
from mauve.web.messages import Reply

PAGE = Reply(200, b"<p>words and words" * 500, {"content-type": "text/html"})


@pytest.mark.parametrize("accepted", ["gzip", "gzip, deflate, br", "br, GZIP;q=0.5", "deflate, gzip;q=1.0", "br,gzip"])
def test_who_reads_gzip_gets_it(accepted):
    reply = deflated(PAGE, accepted)
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.headers["content-type"] == "text/html"
    assert gzip.decompress(reply.body) == PAGE.body
    assert len(reply.body) < len(PAGE.body) / 10


@pytest.mark.parametrize("accepted", ["", "br", "gzip;q=0", "gzip;q=0.0, br", "gzipped", "x-gzip2"])
def test_who_does_not_gets_the_page_as_it_is(accepted):
    reply = deflated(PAGE, accepted)
    assert reply.body == PAGE.body
    assert "content-encoding" not in reply.headers


def test_caches_are_told_that_it_depends():
    assert deflated(PAGE, "gzip").headers["vary"] == deflated(PAGE, "").headers["vary"] == "accept-encoding"


def test_a_short_reply_is_left_alone():
    short = Reply(303, b"", {"location": "/"})
    assert deflated(short, "gzip") == short
