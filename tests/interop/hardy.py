"""A node of Hardy, if the program made of its crates is installed (`make interop`)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.namespace import Namespace
from tests.testbed.node import Bed
from tests.testbed.process import Process
from tests.testbed.programs import installed
from tests.testbed.topology import listens

NODE = 70
SERVICE = 5
ECHO_SERVICE = 7
PORT = 4558


def program() -> Path | None:
    """Return the path of the program, from HARDY_NODE or .tools/bin; None if absent."""
    path = os.environ.get("HARDY_NODE")
    if path is None:
        return installed("hardy-node")
    return Path(path) if Path(path).exists() else None


class Hardy:
    """Node 70 with the endpoint `ipn:70.5`, and the echo endpoint `ipn:70.7`."""

    def __init__(
        self,
        bed: Bed,
        namespace: Namespace,
        address: str = "127.0.0.1",
        *,
        tls: Sequence[str] = (),
    ) -> None:
        """Start it; `tls` has its options for TLS."""
        self._bed = bed
        self._namespace = namespace
        self._address = address
        self._tls = tls
        self._numbers = itertools.count()
        self.inbox = bed.dir / "hardy-inbox"
        self._outbox = bed.dir / "hardy-outbox"
        self.inbox.mkdir()
        self._outbox.mkdir()
        self.start()

    def start(self) -> None:
        """Start it, also again; it then has lost its memory, and its inbox is empty."""
        for path in self.inbox.iterdir():
            path.unlink()
        argv = [
            *("env", "RUST_LOG=info,hardy_tcpclv4=debug"),
            str(program()),
            *("--node", f"ipn:{NODE}.0", "--service", str(SERVICE)),
            *("--listen", f"{self._address}:{PORT}"),
            *("--inbox", str(self.inbox), "--outbox", str(self._outbox)),
            *self._tls,
        ]
        self.process: Process = self._bed.start("hardy", argv, self._namespace)
        self.process.wait_until(lambda: listens(self._namespace, PORT))

    def send(self, destination: str, payload: bytes) -> None:
        """Have it send a payload from its endpoint soon."""
        number = next(self._numbers)
        part = self._outbox / f".{number}"
        part.write_bytes(payload)
        part.rename(self._outbox / f"{destination}#{number}")

    def received(self, count: int, timeout_s: float = 60.0) -> list[bytes]:
        """Wait until `count` payloads have come; return all received."""
        self.process.wait_until(lambda: len(self._files()) >= count, timeout_s=timeout_s)
        return [path.read_bytes() for path in self._files()]

    def forget(self) -> None:
        """Empty the inbox."""
        for path in self._files():
            path.unlink()

    def _files(self) -> list[Path]:
        return [path for path in self.inbox.iterdir() if not path.name.startswith(".")]
