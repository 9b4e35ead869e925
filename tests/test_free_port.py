"""A port that a test chooses for a program is that test's alone."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import free_port


def test_no_port_is_given_twice_in_whatever_process(monkeypatch: pytest.MonkeyPatch) -> None:
    few = range(31_000, 31_040)
    monkeypatch.setattr(free_port, "_PORTS", few)
    monkeypatch.setattr(random, "sample", lambda ports, _count: list(ports))
    mine = [free_port.free_port() for _ in range(10)]
    program = (
        "import random; random.sample = lambda ports, _count: list(ports)\n"
        "from tests import free_port\n"
        f"free_port._PORTS = {few!r}\n"
        "print(*(free_port.free_port() for _ in range(10)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    others = [int(port) for port in told.stdout.split()]
    assert len({*mine, *others}) == 20


def test_a_port_that_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            monkeypatch.setattr(free_port, "_PORTS", [port] * 100)
            with pytest.raises(RuntimeError, match="taken"):
                free_port.free_port()
