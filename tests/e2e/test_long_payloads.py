"""Payloads that are too long for memory: sent, relayed by the disk, received, broken off."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.testbed.applications import applications, bp, socket_of
from tests.testbed.loopback import Loopback
from tests.testbed.node import HUB_NODE, Node, Options, Pair, terminal_node
from tests.testbed.programs import built

pytestmark = pytest.mark.node

_HUB = "ipn:1.40"
_TERMINAL_NODE = terminal_node(0)
_BYTES = 300 << 20
_MOST_KIB = 100 << 10


@contextlib.contextmanager
def _pair(layer: Literal["tcpcl", "quic"]) -> Iterator[Pair[Loopback]]:
    with Loopback() as testbed:
        hub, terminal = (
            {
                **applications(testbed.dir, name),
                "payloads": {"quota_bytes": 1 << 30, "max_payload_bytes": 1 << 29},
            }
            for name in ("hub", testbed.terminals[0].name)
        )
        yield Pair(testbed, Options(terminal=terminal, hub=hub, convergence_layer=layer))


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair[Loopback]]:
    with _pair("tcpcl") as pair:
        yield pair


def _file(folder: Path, size: int) -> tuple[Path, str]:
    path = folder / f"file-{size}"
    digest = hashlib.sha256()
    with path.open("wb") as file:
        left = size
        while left > 0:
            part = os.urandom(min(left, 1 << 20))
            digest.update(part)
            file.write(part)
            left -= len(part)
    return path, digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _peak_kib(node: Node) -> int:
    """Return the process's peak of private memory since its start."""
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    lines = (line.split() for line in status.splitlines())
    return next(int(words[1]) for words in lines if words[0] == "VmHWM:")


def _send(node: Node, path: Path, *options: str) -> None:
    bp(node, "send", *options, "--lifetime", "600", _HUB, str(path), timeout_s=300)


def _wait(until: Callable[[], bool], why_not: str) -> None:
    deadline = time.monotonic() + 60
    while not until():
        assert time.monotonic() < deadline, why_not
        time.sleep(0.05)


def _names(pair: Pair[Loopback], node: int) -> list[Path]:
    """Return the payloads that a node would find again after a kill."""
    return list((pair.testbed.dir / f"state-{node}" / "payloads").iterdir())


def _in_custody(pair: Pair[Loopback], node: int) -> bool:
    """Tell whether a node has one payload, and the record by which it would find that again.

    The payload gets its name first: a kill between the two loses it. The record ends with
    the name.
    """
    names = _names(pair, node)
    custody = pair.testbed.dir / f"state-{node}" / "custody"
    return len(names) == 1 and any(
        names[0].name.encode() in segment.read_bytes() for segment in custody.iterdir()
    )


def _receive(node: Node, folder: Path, timeout_s: int = 120) -> list[Path]:
    received = bp(
        node,
        *("receive", "--service", "40", "--folder", str(folder), "--count", "1"),
        *("--timeout", str(timeout_s)),
        timeout_s=300,
    )
    return [Path(bundle["file"]) for bundle in received]


@pytest.mark.parametrize("options", [(), ("--no-custody",)], ids=["custody", "no-custody"])
def test_a_long_file_arrives_whole_and_neither_node_has_it_in_memory(
    pair: Pair[Loopback], tmp_path: Path, options: tuple[str, ...]
) -> None:
    path, digest = _file(tmp_path, _BYTES)
    _send(pair.terminal, path, *options)
    (received,) = _receive(pair.hub, tmp_path / "received")
    assert _digest(received) == digest
    assert max(_peak_kib(pair.terminal), _peak_kib(pair.hub)) < _MOST_KIB
    _wait(lambda: not _names(pair, _TERMINAL_NODE), "the signal releases it")


def test_a_long_file_goes_over_quic_without_being_in_memory(tmp_path: Path) -> None:
    path, digest = _file(tmp_path, _BYTES)
    with _pair("quic") as pair:
        _send(pair.terminal, path)
        (received,) = _receive(pair.hub, tmp_path / "received")
        assert _digest(received) == digest
        assert max(_peak_kib(pair.terminal), _peak_kib(pair.hub)) < _MOST_KIB
        _wait(lambda: not _names(pair, _TERMINAL_NODE), "the signal releases it")


def test_a_file_in_custody_outlives_a_kill_of_its_sender(
    pair: Pair[Loopback], tmp_path: Path
) -> None:
    pair.hub.process.kill()
    path, digest = _file(tmp_path, 20 << 20)
    _send(pair.terminal, path)
    _wait(lambda: _in_custody(pair, _TERMINAL_NODE), "it is not written")
    pair.terminal.process.kill()
    pair.hub.start()
    pair.terminal.start()
    pair.wait_until_ready()
    (received,) = _receive(pair.hub, tmp_path / "received")
    assert _digest(received) == digest
    _wait(lambda: not _names(pair, _TERMINAL_NODE), "the signal releases it")


def test_a_file_that_is_longer_than_the_node_takes_is_refused_with_the_key(
    pair: Pair[Loopback], tmp_path: Path
) -> None:
    too_long = tmp_path / "sparse"
    with too_long.open("wb") as file:
        file.truncate((1 << 29) + 1)
    with pytest.raises(RuntimeError, match=r"payloads\.max_payload_bytes"):
        _send(pair.terminal, too_long)


def test_ctrl_c_in_the_middle_of_sending_leaves_nothing_behind(
    pair: Pair[Loopback], tmp_path: Path
) -> None:
    pipe, _ = _file(tmp_path, _BYTES)
    command = [built("underpass"), "bp", "send", "--socket", str(socket_of(pair.terminal))]
    sending = subprocess.Popen([*command, _HUB, str(pipe)], stderr=subprocess.PIPE, text=True)
    time.sleep(0.2)
    sending.send_signal(signal.SIGINT)
    _, said = sending.communicate(timeout=60)
    assert sending.returncode != 0
    assert "interrupted" in said
    assert _receive(pair.hub, tmp_path / "received", timeout_s=3) == []
    # Payloads that waited at the terminal, or were on the way, have freed their space.
    path, digest = _file(tmp_path, 20 << 20)
    _send(pair.terminal, path)
    (received,) = _receive(pair.hub, tmp_path / "received")
    assert _digest(received) == digest


def test_what_waits_for_an_application_outlives_a_kill_and_nothing_else_does(
    pair: Pair[Loopback], tmp_path: Path
) -> None:
    path, digest = _file(tmp_path, 20 << 20)
    _send(pair.terminal, path)
    _wait(lambda: bool(_names(pair, HUB_NODE)), "it does not arrive")
    pair.hub.process.kill()
    waiting = pair.testbed.dir / f"state-{HUB_NODE}" / "payloads"
    (waiting / "0123456789abcdef").write_bytes(b"left by a crash")
    pair.hub.start()
    pair.wait_until_ready()
    (received,) = _receive(pair.hub, tmp_path / "received")
    assert _digest(received) == digest
    _wait(lambda: not _names(pair, HUB_NODE), "the payload stays")
