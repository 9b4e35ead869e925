"""Ports for programs that do not choose their own."""

from __future__ import annotations

import random
import socket

# Below those that the kernel gives clients: none of them takes one meanwhile.
_PORTS = range(20_000, 32_000)
# What reserves ports for this process.
_reserved: list[socket.socket] = []


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody has, and that is this process's until its end.

    Nobody listens there until a program of the test does. An abstract name of a Unix socket
    reserves the port against other tests: it is known where the port is, in the network namespace,
    and goes with the process, however that ends.
    """
    for port in random.sample(_PORTS, 100):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0underpass-test-port-{port}")
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            name.close()
            continue
        _reserved.append(name)
        return port
    raise RuntimeError("of a hundred ports each is taken")
