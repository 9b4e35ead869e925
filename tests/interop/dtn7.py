"""A daemon of dtn7-rs 0.21.0 and its tools, if installed (`make interop`)."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests.testbed.namespace import Namespace
from tests.testbed.node import Bed
from tests.testbed.process import Process
from tests.testbed.programs import installed
from tests.testbed.topology import listens

NODE = 20
SERVICE = 5
TCPCL_PORT = 4557
_WEB_PORT = 3000
# The first bytes of a status report: the daemon requests one for each delivery.
_REPORT = b"\x82\x01\x84"


def program(name: str) -> Path | None:
    """Return the path of one of its programs, in DTN7_BIN or .tools/bin; None if absent."""
    folder = os.environ.get("DTN7_BIN")
    if folder is None:
        return installed(name)
    path = Path(folder) / name
    return path if path.exists() else None


class Dtn7:
    """A daemon, node 20 unless given another number, with an endpoint `ipn:20.5`.

    With `ecla`, external programs are its only convergence layers, at its web port.
    """

    def __init__(
        self,
        bed: Bed,
        namespace: Namespace,
        address: str = "127.0.0.1",
        *,
        number: int = NODE,
        web_port: int = _WEB_PORT,
        ecla: bool = False,
    ) -> None:
        self._address = address
        self.number = number
        self._web_port = web_port
        self._ecla = ecla
        self._bed = bed
        self._namespace = namespace
        self.start()

    def start(self) -> None:
        """Start it, also again; it then has lost its memory."""
        argv = [
            str(program("dtnd")),
            *("--nodeid", str(self.number), "--endpoint", str(SERVICE)),
            *(
                ["--ecla"]
                if self._ecla
                else ["--cla", f"tcp:port={TCPCL_PORT}:bind={self._address}"]
            ),
            *("--routing", "epidemic", "--db", "mem"),
            *("--workdir", str(self._bed.dir), "--web-port", str(self._web_port)),
            # The daemon forgets a peer that has dialled it after this time, whatever it sends.
            *("--disable_nd", "--peer-timeout", "1day", "--janitor", "1s"),
        ]
        self.process: Process = self._bed.start(f"dtnd-{self.number}", argv, self._namespace)
        if not self._ecla:
            self.process.wait_until(lambda: listens(self._namespace, TCPCL_PORT))
        self.process.wait_until(lambda: listens(self._namespace, self._web_port))

    def send(self, destination: str, payload: bytes) -> None:
        """Send a payload from its endpoint."""
        source = f"ipn:{self.number}.{SERVICE}"
        self._tool("dtnsend", "--sender", source, "--receiver", destination, stdin=payload)

    def receive(self) -> bytes | None:
        """Return the payload of the next bundle for its endpoint; None if there is none."""
        path = self._bed.dir / f"received-{self.number}"
        path.unlink(missing_ok=True)
        self._tool("dtnrecv", "--endpoint", str(SERVICE), "--outfile", str(path))
        return path.read_bytes() if path.exists() else None

    def arrived(self, count: int, timeout_s: float = 40.0, *, reports: bool = True) -> list[bytes]:
        """Return the next `count` payloads, with or without reports; fewer if no more come."""
        payloads: list[bytes] = []
        deadline = time.monotonic() + timeout_s
        while len(payloads) < count and time.monotonic() < deadline:
            payload = self.receive()
            if payload is None:
                time.sleep(0.1)
            elif reports or not payload.startswith(_REPORT):
                payloads.append(payload)
        return payloads

    def _tool(self, name: str, *args: str, stdin: bytes = b"") -> bytes:
        argv = self._namespace.argv(str(program(name)), "--port", str(self._web_port), *args)
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {done.stderr.decode()}{done.stdout.decode()}")
        return done.stdout
