"""Where webhooks may go, how messages are signed, and when they are sent again."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import threading
from ipaddress import ip_network

import pytest
from aiohttp.abc import ResolveResult
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.alerts.addresses import (
    AddressError,
    CheckedResolver,
    check_address,
    check_url,
)
from underpass_control.alerts.sending import signature
from underpass_control.pauses import again_after_ms

INNER = (
    *("127.0.0.1", "127.255.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
    *("0.0.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1"),
    *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
    # Reserved, or a way to an inner IPv4 address.
    *("fec0::1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::1", "2001::1", "5f00::1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::10.1.2.3", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
    # Public by their numbers, but reachable only from the host itself.
    *("168.63.129.16", "192.0.0.192", "64:ff9b::168.63.129.16"),
)


@pytest.mark.parametrize("address", INNER)
def test_inner_addresses_are_refused(address: str) -> None:
    with pytest.raises(AddressError, match="--webhook-networks"):
        check_address(address, ())


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"]
)
def test_public_addresses_are_not(address: str) -> None:
    check_address(address, ())


def test_a_network_that_is_allowed_is_no_wider_than_it_is() -> None:
    allowed = (ip_network("10.1.0.0/16"), ip_network("fd00::/8"))
    check_address("10.1.2.3", allowed)
    check_address("::ffff:10.1.2.3", allowed)
    check_address("fd00::1", allowed)
    with pytest.raises(AddressError):
        check_address("10.2.0.1", allowed)


def test_where_a_host_is_told_its_credentials_is_allowed_by_the_very_address_only() -> None:
    around = (ip_network("169.254.0.0/16"), ip_network("fd00::/8"))
    for address in ("169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254"):
        with pytest.raises(AddressError, match="the very address"):
            check_address(address, around)
    check_address("169.254.169.254", (*around, ip_network("169.254.169.254/32")))
    check_address("169.254.1.1", around)


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "gopher://example.com/", "https://", "example.com/hook"),
        *("https://user:secret@example.com/", "https://example.com/#part"),
        *("http://127.0.0.1/", "http://[::1]:8470/", "http://[::ffff:127.0.0.1]/"),
        *("https://169.254.169.254/latest/meta-data", "http://example.com:99999/"),
    ],
)
def test_what_is_no_address_of_a_webhook_is_refused(url: str) -> None:
    with pytest.raises(AddressError):
        check_url(url, ())


@pytest.mark.parametrize("host", ["localhost", "127.1", "0x7f000001", "2130706433"])
def test_names_are_judged_by_what_they_are_looked_up_to(host: str) -> None:
    async def look_up() -> list[ResolveResult]:
        return await CheckedResolver(()).resolve(host, 80, socket.AF_UNSPEC)

    check_url(f"http://{host}/", ())
    with pytest.raises(AddressError):
        asyncio.run(look_up())


def test_a_name_server_that_does_not_answer_stops_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()

    def silent(*_given: object, **_named: object) -> list[object]:
        answers.wait(60)
        return []

    async def run() -> None:
        resolver = CheckedResolver(())
        asked = [
            asyncio.create_task(resolver.resolve(f"{number}.example", 443, socket.AF_UNSPEC))
            for number in range(40)
        ]
        await asyncio.sleep(0.2)
        try:
            async with asyncio.timeout(10):
                # The service's other work in threads.
                await asyncio.to_thread(int)
        finally:
            answers.set()
        assert await asyncio.gather(*asked) == [[]] * 40
        await resolver.close()

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    asyncio.run(run())


def test_a_signature_is_of_the_time_and_the_body() -> None:
    signed = signature("secret", 1_700_000_000, b'{"event":"firing"}')
    digest = hmac.new(b"secret", b'1700000000.{"event":"firing"}', hashlib.sha256).hexdigest()
    assert signed == f"t=1700000000,v1={digest}"
    assert signature("secret", 1_700_000_001, b'{"event":"firing"}') != signed
    assert signature("another", 1_700_000_000, b'{"event":"firing"}') != signed


@given(st.integers(1, 1_000), st.floats(0, 1))
def test_it_is_sent_again_later_and_later(failures: int, drawn: float) -> None:
    longest_ms = min(5_000 * 2 ** (failures - 1), 3_600_000)
    assert longest_ms / 2 - 1 <= again_after_ms(failures, drawn) <= longest_ms
