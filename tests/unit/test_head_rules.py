"""An ambiguous head is refused with a reason."""

import pytest

from mauve.web import head_rules
from mauve.web.head_rules import flaw_in


@pytest.mark.parametrize(
    "host", [b"x", b"a.example", b"a.example:80", b"a.example:", b"127.0.0.1:8081", b"[::1]:8080", b"my_host", b"a%2db"]
)
def test_a_valid_host_is_accepted(host):
    assert flaw_in("1.1", [host], [], []) is None


@pytest.mark.parametrize(
    "host", [b"a b", b"a, b", b"u@h", b"a/b", b"a:b", b"a:123456", b"[::1", b"a\\b", b"h\xc3\xb6st", b"%zz", b"x" * 301]
)
def test_an_invalid_host_is_refused(host):
    assert flaw_in("1.1", [host], [], []) is head_rules.HOST_INVALID
    assert flaw_in("1.0", [host], [], []) is head_rules.HOST_INVALID


def test_http_1_1_needs_one_host_and_http_1_0_none():
    assert flaw_in("1.1", [], [], []) is head_rules.HOST_MISSING
    assert flaw_in("1.1", [b""], [], []) is head_rules.HOST_MISSING
    assert flaw_in("1.0", [], [], []) is None
    assert flaw_in("1.1", [b"x", b"x"], [], []) is head_rules.HOST_REPEATED
    assert flaw_in("1.0", [b"x", b"y"], [], []) is head_rules.HOST_REPEATED


@pytest.mark.parametrize("length", [b"0", b"12", b"00012", b"9" * 19])
def test_a_length_is_a_number(length):
    assert flaw_in("1.1", [b"x"], [length], []) is None


@pytest.mark.parametrize(
    "length", [b"", b"+5", b"-5", b"5, 5", b"5 5", b"0x5", b"5_0", b"5.0", b"0" * 5000 + b"5", b"1" * 20]
)
def test_a_length_that_is_not_a_number_or_too_long_is_refused(length):
    assert flaw_in("1.1", [b"x"], [length], []) is head_rules.LENGTH_INVALID


def test_a_length_is_given_once_and_in_one_way():
    assert flaw_in("1.1", [b"x"], [b"5", b"5"], []) is head_rules.LENGTH_INVALID
    assert flaw_in("1.1", [b"x"], [b"5"], [b"chunked"]) is head_rules.LENGTH_TWICE


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b" chunked "])
def test_chunked_is_the_only_coding(coding):
    assert flaw_in("1.1", [b"x"], [], [coding]) is None
    assert flaw_in("1.0", [b"x"], [], [coding]) is head_rules.CODING_TOO_NEW


@pytest.mark.parametrize(
    "codings",
    [
        [b""],
        [b"gzip"],
        [b"identity"],
        [b"xchunked"],
        [b"gzip, chunked"],
        [b"gzip", b"chunked"],
        [b"chunked, chunked"],
        [b"chunked;a=b"],
    ],
)
def test_any_other_coding_is_refused(codings):
    assert flaw_in("1.1", [b"x"], [], codings) is head_rules.CODING_UNKNOWN
