"""Which addresses a message may go to."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.alerts.channels.connection import check_email, check_resolved, endpoint_from, is_public

PRIVATE = {
    "private": ("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12:3456::1"),
    "loopback": ("127.0.0.1", "127.255.255.254", "::1"),
    "unspecified": ("0.0.0.0", "0.1.2.3", "::"),
    "link-local, where clouds serve credentials": ("169.254.169.254", "fe80::1", "fe80::1%eth0", "fd00:ec2::254"),
    "shared by carriers": ("100.64.0.1", "100.100.100.200", "100.127.255.255"),
    "multicast": ("224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"),
    "reserved": ("240.0.0.1", "255.255.255.255", "100::1", "5f00::1", "fec0::1"),
    "documentation": ("192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"),
    "benchmarks": ("198.18.0.1", "198.19.255.255"),
    "special": ("192.0.0.8", "192.0.0.192", "192.88.99.1", "168.63.129.16", "2001:2::1"),
    "IPv4 in IPv6": ("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1"),
    "NAT64": ("64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
    "tunnels": ("2002:7f00:1::1", "2002:5db8:d822::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
}
PUBLIC = ("93.184.216.34", "8.8.8.8", "2606:4700::1111", "2a00:1450:4001::1", "64:ff9b::808:808", "::ffff:8.8.8.8")


@pytest.mark.parametrize("family", PRIVATE)
def test_addresses_of_a_private_network_are_refused(family):
    assert [each for each in PRIVATE[family] if is_public(ip_address(each))] == []


def test_addresses_of_the_internet_are_allowed():
    assert [each for each in PUBLIC if not is_public(ip_address(each))] == []


@given(st.ip_addresses(v=4))
def test_an_address_is_treated_the_same_in_every_form_of_ipv6_that_leads_to_it(address: IPv4Address):
    for prefix in (0xFFFF << 32, 0x64_FF9B << 96):
        assert is_public(IPv6Address(prefix | int(address))) == is_public(address)


@given(st.ip_addresses())
def test_a_public_address_is_global_and_for_one_machine(address):
    if is_public(address):
        assert address.is_global or (isinstance(address, IPv6Address) and address.ipv4_mapped)
        assert not any((address.is_multicast, address.is_loopback, address.is_link_local, address.is_unspecified))


def test_one_private_address_among_those_of_a_name_refuses_it():
    check_resolved(["93.184.216.34", "2606:4700::1111"])
    with pytest.raises(ValueError, match="private network"):
        check_resolved(["93.184.216.34", "10.0.0.1"])


def test_the_address_of_a_webhook_is_https_and_public():
    endpoint_from("https://hooks.example.com/services/T0/B0/x?wait=true", allow_private=False)
    endpoint_from("https://93.184.216.34:8443/", allow_private=False)
    refused = (
        *("http://example.com/", "ftp://example.com/", "file:///etc/passwd", "example.com/hook", "", "https://"),
        *(
            "https://localhost/",
            "https://a.localhost/",
            "https://printer/",
            "https://db.internal/",
            "https://x.local./",
        ),
        *(
            "https://127.0.0.1/",
            "https://127.1/",
            "https://127.0.0.0x1/",
            "https://2130706433/",
            "https://0x7f000001/",
            "https://[::1]/",
        ),
        *("https://[::ffff:10.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://[fe80::1%25eth0]/", "https://[::1/"),
        *("https://user@example.com/", "https://user:pw@example.com/", "https://example.com:99999/"),
        *("https://example.com/a b", "https://example.com/\r\nHost: x", "https://example.com\\@10.0.0.1/"),
        *("https://bücher.example/", "https://example.com/" + "x" * 2048),
    )
    assert [address for address in refused if not is_refused(address)] == []


def test_a_refusal_names_the_setting_that_allows_private_addresses():
    for address in ("http://example.com/", "https://10.0.0.1/"):
        with pytest.raises(ValueError, match="MAUVE_ALERTS_ALLOW_PRIVATE"):
            endpoint_from(address, allow_private=False)


def is_refused(address):
    try:
        endpoint_from(address, allow_private=False)
    except ValueError:
        return True
    return False


def test_private_addresses_and_plain_http_are_accepted_where_the_operator_allows_them():
    for address in ("http://127.0.0.1:8000/hook", "http://chat/hook", "https://[::1]/hook"):
        endpoint_from(address, allow_private=True)
    with pytest.raises(ValueError, match="https"):
        endpoint_from("ftp://127.0.0.1/", allow_private=True)


def test_a_request_goes_to_the_parts_of_the_address():
    assert endpoint_from("https://Example.com/a?b=c#d", allow_private=False) == (
        *(True, "example.com", 443, "Example.com", "/a?b=c"),
    )
    assert endpoint_from("http://[::1]:81", allow_private=True) == (False, "::1", 81, "[::1]:81", "/")


def test_an_email_address_cannot_hold_a_second_one_or_a_header():
    check_email("first.last+tag@mail.example.com")
    refused = (
        *("", "you", "@example.com", "you@", "a@b@c", "a b@example.com", "a@exa mple.com", "a,b@example.com"),
        *("a@example.com,b@example.com", "<a@example.com>", 'a"b@example.com', "a@example.com\r\nBcc: b@example.com"),
        *("a..b@example.com", ".a@example.com", "a.@example.com", "a@example..com", "a@example.com.", "a@x.com\n"),
        *("a@[10.0.0.1]", "jürgen@example.com", f"{'a' * 65}@example.com", f"a@{'b.' * 130}com"),
    )
    for address in refused:
        with pytest.raises(ValueError, match=r"Enter one such as you@example\.com"):
            check_email(address)
