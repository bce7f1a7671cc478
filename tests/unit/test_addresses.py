"""Connections and requests per address are limited."""

import pytest
from structlog.testing import capture_logs

from mauve.overload.fair_share import PerAddress, origin_of
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
def test_an_address_counts_toward_its_network(address, origin):
    assert origin_of(address) == origin


def test_a_connection_over_the_limit_is_refused_until_another_leaves():
    addresses = PerAddress(2, "connections")
    assert [addresses.enter("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert addresses.enter("192.0.2.2")
    addresses.leave("192.0.2.1")
    assert [addresses.enter("192.0.2.1") for _ in range(2)] == [True, False]


def test_an_ipv6_network_counts_as_one_address():
    addresses = PerAddress(2, "connections")
    assert [addresses.enter(f"2001:db8::{number:x}") for number in range(3)] == [True, True, False]
    assert addresses.enter("2001:db8:0:1::1")


def test_without_a_limit_every_connection_is_accepted():
    addresses = PerAddress(0, "connections")
    assert all(addresses.enter("192.0.2.1") for _ in range(5000))
    addresses.leave("192.0.2.1")


def test_refusals_are_logged_at_most_once_a_minute():
    ticks = Ticks()
    addresses = PerAddress(1, "connections", ticks)
    addresses.enter("192.0.2.1")
    with capture_logs() as logged:
        for _ in range(100):
            assert not addresses.enter("192.0.2.1")
        ticks.now_s += 61
        assert not addresses.enter("192.0.2.1")
    assert [(line["owner"], line["times"]) for line in logged] == [("192.0.2.1", 1), ("192.0.2.1", 100)]
    assert "MAUVE_PROXIES" in logged[0]["advice"]
