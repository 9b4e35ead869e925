"""A node of ION-DTN, if ION_PREFIX names an installation.

It has its own namespaces for processes, System V memory, and semaphores in /dev/shm. So several
nodes do not interfere, and the end of a namespace's first process ends all of its processes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from tests.testbed.namespace import Namespace
from tests.testbed.node import Bed
from tests.testbed.process import Process

Layer = Literal["stcp", "udp", "ltp"]

# The service numbers of a node's endpoints besides the administrative one.
SERVICES = (1, 2, 3, 4)
# Each of its daemons takes about a second to start.
_START_S = 60.0
_TOOL_S = 60.0
# Reaps ION's daemons, which their parents abandon.
_FIRST_PROCESS = "mount -t tmpfs tmpfs /dev/shm && touch ready && while sleep 3600; do :; done"


def prefix() -> Path | None:
    """Return ION's installation folder; None if there is none."""
    folder = os.environ.get("ION_PREFIX")
    return Path(folder) if folder and (Path(folder) / "bin" / "ionadmin").exists() else None


@dataclass(frozen=True)
class Neighbour:
    """A neighbour of the node, with addresses `HOST:PORT`."""

    number: int
    layer: Layer
    # Where the neighbour receives bundles, and where ION does.
    remote: str
    listen: str


class Ion:
    """A node of ION with the endpoints `ipn:NUMBER.1` to `.4`."""

    def __init__(
        self,
        bed: Bed,
        namespace: Namespace,
        number: int,
        neighbours: Sequence[Neighbour],
        *,
        aggregate_bytes: int = 1,
        bibe: tuple[int, int] | None = None,
    ) -> None:
        """Start it.

        LTP sends a block when it has `aggregate_bytes` of bundles, or after a second. With `bibe`,
        custody with its first node, a neighbour, is by BIBE; bundles for the second go there, too.
        """
        self.number = number
        self._bed = bed
        self._namespace = namespace
        self._neighbours = neighbours
        self._aggregate_bytes = aggregate_bytes
        self._bibe = bibe
        self.dir = bed.dir / f"ion-{number}"
        self.dir.mkdir()
        self.start()

    def start(self) -> None:
        """Start it with nothing in custody."""
        for file in self.dir.iterdir():
            file.unlink()
        argv = [
            *("unshare", "--pid", "--ipc", "--mount", "--mount-proc", "--fork", "--kill-child"),
            *("env", "-C", str(self.dir), "bash", "-c", _FIRST_PROCESS),
        ]
        self.process: Process = self._bed.start(f"ion-{self.number}", argv, self._namespace)
        self.process.wait_until(lambda: (self.dir / "ready").exists())
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        (self._first,) = children.read_text().split()
        self._configure()
        # Its daemons report in its log that they run; until then LTP cancels received blocks.
        running = [f"{each.layer}cli is running" for each in self._neighbours]
        self.process.wait_until(lambda: all(said in self.log(1000) for said in running))

    def kill(self) -> None:
        """End all its processes; it loses its memory."""
        # `unshare` does not pass SIGTERM on, but its child dies with it.
        self.process.kill()

    def tool(self, name: str, *args: str, timeout_s: float = _TOOL_S) -> str:
        """Run one of its programs to the end and return its output.

        Raises:
            RuntimeError: It fails or takes too long; the text has its output and `ion.log`'s end.
        """
        with tempfile.TemporaryFile("w+") as out:
            running = self.background(name, *args, out=out)
            try:
                code: int | str = running.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = f"not at its end after {timeout_s} s"
                running.kill()
                running.wait()
            out.seek(0)
            said = out.read()
        # They exit with 0 even after a failure, but then print its place in their source.
        if code != 0 or re.search(r"^at line \d+ of ", said, re.MULTILINE):
            raise RuntimeError(f"{name}: {code}: {said}{self.log()}")
        return said

    def background(
        self, name: str, *args: str, out: IO[str] | int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Start one of its programs, which ends with the node at the latest.

        Its output goes to a file, since the daemons that it starts would keep a pipe open.
        """
        installation = prefix()
        assert installation is not None
        inside = ["nsenter", "--target", self._first, "--pid", "--ipc", "--mount", "--net"]
        # ION writes its log and `testfile1` to its working directory.
        there = ["env", "-C", str(self.dir)]
        return subprocess.Popen(
            [*inside, *there, str(installation / "bin" / name), *args],
            env={
                **os.environ,
                "LD_LIBRARY_PATH": str(installation / "lib"),
                "PATH": f"{installation / 'bin'}:{os.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )

    def endpoint(self, service: int) -> str:
        """Return the id of one of its endpoints."""
        return f"ipn:{self.number}.{service}"

    def log(self, lines: int = 30) -> str:
        """Return the end of its log."""
        path = self.dir / "ion.log"
        said = path.read_text(errors="replace").splitlines() if path.exists() else []
        return "\n".join(said[-lines:])

    def _configure(self) -> None:
        own = self.number
        by_ltp = [each for each in self._neighbours if each.layer == "ltp"]
        others = [each for each in self._neighbours if each.layer != "ltp"]
        # Memory: 160 MB for bundles (words of 8 bytes), 20 MB for tables.
        config = self._write(
            "ionconfig",
            *("wmSize 20000000", "heapWords 20000000", "configFlags 1", f"pathName {self.dir}"),
        )
        numbers = [own, *(each.number for each in self._neighbours)]
        ways = [(own, own), *((a, b) for n in numbers[1:] for a, b in ((own, n), (n, own)))]
        self._admin(
            "ionadmin",
            *(f"1 {own} {config}", "s"),
            *(f"a range +0 +86400 {a} {b} 1" for a, b in ways if a <= b),
            *(f"a contact +0 +86400 {a} {b} 100000000" for a, b in ways),
        )
        if by_ltp:
            (listen,) = {each.listen for each in by_ltp}
            self._admin(
                "ltpadmin",
                "1 32",
                *(
                    f"a span {each.number} 16 64 1400 {self._aggregate_bytes} 1 "
                    f"'udplso {each.remote}'"
                    for each in by_ltp
                ),
                f"s 'udplsi {listen}'",
            )
        layers = sorted({each.layer for each in self._neighbours})
        self._admin(
            "bpadmin",
            *("1", "a scheme ipn 'ipnfw' 'ipnadminep'"),
            *self._custody_by_bibe(),
            *(f"a endpoint {self.endpoint(service)} q" for service in SERVICES),
            *(f"a protocol {layer}" for layer in layers),
            *([f"a induct ltp {own} ltpcli"] if by_ltp else []),
            *(f"a induct {each.layer} {each.listen} {each.layer}cli" for each in others),
            *(f"a outduct ltp {each.number} ltpclo" for each in by_ltp),
            *(f"a outduct {each.layer} {each.remote} {each.layer}clo" for each in others),
            "s",
        )
        self._admin(
            "ipnadmin",
            *(f"a plan {each.number} ltp/{each.number}" for each in by_ltp),
            *(f"a plan {each.number} {each.layer}/{each.remote}" for each in others),
        )
        if self._bibe:
            peer, beyond = self._bibe
            self._admin("bpadmin", f"a planduct ipn:{peer}.0 bibe ipn:{peer}.0")
            self._admin("ipnadmin", f"a rtovrd 0 {beyond} 0 {peer} bibe/ipn:{peer}.0")

    def _custody_by_bibe(self) -> list[str]:
        """Return the commands that set up BIBE: a second each way, custody requested (64)."""
        if self._bibe is None:
            return []
        peer, _ = self._bibe
        bcla = self._write("biberc", f"a bcla ipn:{peer}.0 1 1 '' 0 60 1 0 64 0")
        return [
            f"r 'bibeadmin {bcla}'",
            *("a protocol bibe", "a induct bibe * ''", f"a outduct bibe ipn:{peer}.0 bibeclo"),
        ]

    def _admin(self, program: str, *commands: str) -> None:
        """Run commands in one of its administration programs."""
        self.tool(program, str(self._write(f"{program}.rc", *commands)), timeout_s=_START_S)

    def _write(self, name: str, *lines: str) -> Path:
        path = self.dir / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return path


def missing_reason() -> str | None:
    """Return why tests with ION cannot run; None if they can."""
    if prefix() is None:
        return "ION-DTN is not here: set ION_PREFIX to where it is installed"
    return None if shutil.which("unshare") and shutil.which("nsenter") else "no unshare, nsenter"
