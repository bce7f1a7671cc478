"""Nobody has everything: what one address may have at a time is bounded."""

import pytest
from structlog.testing import capture_logs

from mauve.overload.per_address import PerAddress, origin_of
from support.clocks import Ticks


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("a socket", "a socket"),
    ],
)
def test_an_address_is_counted_by_where_it_is(address, origin):
    assert origin_of(address) == origin


def test_one_too_many_is_refused_until_another_leaves():
    addresses = PerAddress(2, "connections")
    assert [addresses.enter("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert addresses.enter("192.0.2.2")
    addresses.leave("192.0.2.1")
    assert [addresses.enter("192.0.2.1") for _ in range(2)] == [True, False]


def test_a_network_of_ipv6_is_one():
    addresses = PerAddress(2, "connections")
    assert [addresses.enter(f"2001:db8::{number:x}") for number in range(3)] == [True, True, False]
    assert addresses.enter("2001:db8:0:1::1")


def test_without_a_bound_everybody_enters():
    addresses = PerAddress(0, "connections")
    assert all(addresses.enter("192.0.2.1") for _ in range(5000))
    addresses.leave("192.0.2.1")


def test_who_is_refused_is_logged_and_seldom():
    ticks = Ticks()
    addresses = PerAddress(1, "connections", ticks)
    addresses.enter("192.0.2.1")
    with capture_logs() as logged:
        for _ in range(100):
            assert not addresses.enter("192.0.2.1")
        ticks.now_s += 61
        assert not addresses.enter("192.0.2.1")
    assert [(line["origin"], line["times"]) for line in logged] == [("192.0.2.1", 1), ("192.0.2.1", 100)]
    assert "MAUVE_PROXIES" in logged[0]["advice"]
