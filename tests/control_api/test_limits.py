"""Which callers are refused for asking too often, and for which caller a request counts."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.http.addresses import client_address
from underpass_control.http.limits import Buckets

PROXIES = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("2001:db8::/32"))


@given(st.lists(st.floats(0, 2), max_size=200))
def test_no_more_pass_than_the_burst_and_what_has_come_in_since(pauses: list[float]) -> None:
    buckets = Buckets(5, 20)
    now = 0.0
    passed = 0
    for pause in pauses:
        now += pause
        wait_s = buckets.take("a", now)
        if wait_s:
            assert buckets.take("a", now + wait_s * 0.99) > 0
        else:
            passed += 1
    assert passed <= 20 + 5 * now + 1e-6


def test_who_waits_as_long_as_told_is_let_in() -> None:
    buckets = Buckets(5, 3)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0, 0, 0, 0.2]
    assert buckets.take("a", 0.2) == 0


def test_one_who_asks_too_often_is_refused_alone() -> None:
    buckets = Buckets(1, 1)
    buckets.take("a", 0.0)
    assert buckets.take("a", 0.0) > 0
    assert buckets.take("b", 0.0) == 0


def test_what_is_given_back_does_not_count() -> None:
    buckets = Buckets(1, 2)
    for _ in range(10):
        assert buckets.take("a", 0.0) == 0
        buckets.give_back("a", 0.0)


def test_a_million_addresses_take_no_more_memory_than_ten_thousand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("underpass_control.http.limits._MOST_KEYS", 100)
    buckets = Buckets(1, 1)
    for key in range(10_000):
        buckets.take(key, 0.0)
    assert len(buckets._left) == 100
    # Only the newest are remembered.
    assert buckets.take(9_999, 0.0) > 0


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
        ("127.0.0.1", "198.51.100.7", "198.51.100.7"),
        # Anything that the client itself wrote there is further left.
        ("127.0.0.1", "203.0.113.9, 198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "198.51.100.7, 127.0.0.2", "198.51.100.7"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "nonsense", "127.0.0.1"),
        ("2001:db9:0:1:2:3:4:5", "", "2001:db9:0:1::/64"),
        ("2001:db8::1", "2001:db9:0:1::7", "2001:db9:0:1::/64"),
        ("::ffff:192.0.2.1", "", "192.0.2.1"),
        (None, "198.51.100.7", ""),
    ],
)
def test_a_request_counts_for_the_address_that_trusted_proxies_tell(
    peer: str | None, forwarded: str, address: str
) -> None:
    assert client_address(peer, forwarded, PROXIES) == address
