"""Two nodes that know each other by address alone and authenticate bundles."""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import socket
import struct
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from underpass_control.toml_text import toml_text

from tests.e2e.conftest import NEAR, StartPair, whole
from tests.testbed import addresses, bare_paths
from tests.testbed.bare_paths import BareLayer
from tests.testbed.client.transfer import download, upload
from tests.testbed.node import Node, Options, Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_SIZE = 1_000_000
_IP_AND_UDP_BYTES = 20 + 8


def _key(folder: Path, name: str) -> str:
    file = folder / f"{name}.key"
    file.write_text(secrets.token_hex(32))
    file.chmod(0o600)
    return name


def _options(layer: BareLayer, folder: Path, **rule: object) -> Options:
    """Return options by which nodes know each other by address and authenticate all bundles."""
    bpsec = {"keys_dir": str(folder), "rule": [rule]}
    return Options(
        tls=False,
        terminal={**bare_paths.terminal(layer, NEAR), "bpsec": bpsec},
        hub={**bare_paths.hub(layer, NEAR), "bpsec": bpsec},
    )


def _counts(node: Node, operation: str = "integrity") -> dict[str, int]:
    counts: dict[str, int] = node.status()["bpsec"][operation]
    return counts


@contextmanager
def _overheard(pair: Pair[Testbed]) -> Iterator[list[bytes]]:
    """Collect the bundles that the terminal sends to the hub over UDP in the meantime."""
    heard: list[bytes] = []
    with (
        pair.hub.namespace.entered(),
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as raw,
    ):
        raw.setblocking(False)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        yield heard
        while True:
            try:
                packet = raw.recv(65_536)
            except BlockingIOError:
                break
            (port,) = struct.unpack_from("!H", packet, 22)
            bundle = packet[_IP_AND_UDP_BYTES:]
            if port == bare_paths.PORT and bundle[:1] == b"\x9f":
                heard.append(bundle)


def _bib(bundle: bytes) -> tuple[int, int]:
    """Return where a bundle's block integrity block begins and ends."""
    # An array of five: type 11, number 8, no flags, no CRC, a byte string of one length byte.
    start = bundle.index(b"\x85\x0b\x08\x00\x00\x58")
    return start, start + 7 + bundle[start + 6]


def _spoof(pair: Pair[Testbed], bundles: list[bytes]) -> None:
    """Send datagrams to the hub from the terminal's host."""
    with pair.terminal.namespace.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        for bundle in bundles:
            datagrams.sendto(bundle, (addresses.HUB_SAT, bare_paths.PORT))


def test_a_host_at_the_neighbours_address_gets_nothing_past_the_keys(
    start_pair: StartPair, tmp_path: Path
) -> None:
    key = _key(tmp_path, "field")
    pair = start_pair(options=_options("udp", tmp_path, integrity_keys=[key]))
    with _overheard(pair) as heard:
        assert download(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()).complete
    assert len(heard) >= 2
    same_size = (
        (one, other)
        for one, other in itertools.combinations(heard, 2)
        if _bib(one)[1] - _bib(one)[0] == _bib(other)[1] - _bib(other)[0]
    )
    one, other = next(same_size)
    (start, end), (other_start, other_end) = _bib(one), _bib(other)
    stripped = one[:start] + one[end:]
    altered = one[:-2] + bytes([one[-2] ^ 1]) + one[-1:]
    of_another = one[:start] + other[other_start:other_end] + one[end:]
    truncated = (
        one[: start + 6] + bytes([one[start + 6] - 9]) + one[start + 7 : end - 9] + one[end:]
    )
    before = _counts(pair.hub)
    assert before["missing"] == before["failed"] == before["malformed"] == 0

    hostile = [stripped, altered, of_another, truncated]
    _spoof(pair, hostile * 5)

    def refused() -> bool:
        now = _counts(pair.hub)
        return (now["missing"], now["failed"], now["malformed"]) == (5, 10, 5)

    pair.hub.process.wait_until(refused)
    # Complete bundles that were received before change nothing either.
    _spoof(pair, heard)
    for transfer in (download, upload):
        whole(transfer(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()))
    metric = 'underpass_bpsec_bundles_total{operation="integrity",outcome="failed"}'
    assert pair.hub.api.metrics()[metric] == 10
    assert _counts(pair.terminal)["failed"] == 0


def test_a_node_without_the_key_is_nobody(start_pair: StartPair, tmp_path: Path) -> None:
    key = _key(tmp_path, "field")
    pair = start_pair(options=_options("stcp", tmp_path, integrity_keys=[key]))
    config = _written(pair.terminal)
    config["bpsec"] = {}
    _reread(pair.terminal, config)
    refused = download(pair.client, addresses.ORIGIN, 1_000, route=pair.socks5(), deadline_s=3.0)
    assert not refused.complete
    assert _counts(pair.hub)["missing"] > 0


@pytest.mark.parametrize("layer", ["stcp", "ltp"])
def test_streams_are_authenticated_and_encrypted_while_keys_are_replaced(
    start_pair: StartPair, tmp_path: Path, layer: BareLayer
) -> None:
    names = ["old", "new", "old-secret", "new-secret"]
    old, new, old_secret, new_secret = (_key(tmp_path, name) for name in names)
    options = _options(layer, tmp_path, integrity_keys=[old], confidentiality_keys=[old_secret])
    pair = start_pair(options=options)
    for integrity, secret in [
        ([old], [old_secret]),
        ([old, new], [old_secret, new_secret]),
        ([new, old], [new_secret, old_secret]),
        ([new], [new_secret]),
    ]:
        rule = {"integrity_keys": integrity, "confidentiality_keys": secret}
        for node in (pair.hub, pair.terminal):
            config = _written(node)
            config["bpsec"] = {"keys_dir": str(tmp_path), "rule": [rule]}
            _reread(node, config)
        for transfer in (download, upload):
            whole(transfer(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()))
    for node in (pair.hub, pair.terminal):
        for operation in ("integrity", "confidentiality"):
            counts = _counts(node, operation)
            assert counts["added"] > 0
            assert counts["verified"] > 0


def _written(node: Node) -> dict[str, Any]:
    return tomllib.loads(node.config_path.read_text())


def _reread(node: Node, config: dict[str, Any]) -> None:
    """Have a node read another configuration."""
    text = toml_text(config)
    if text == node.config_path.read_text():
        return
    node.config_path.write_text(text)
    told = "configuration read again"
    before = node.process.log_path.read_text().count(told)
    os.kill(node.process.pid, signal.SIGHUP)
    node.process.wait_until(lambda: node.process.log_path.read_text().count(told) > before)
