"""From a bare container to a client's first byte: what is typed, and what it takes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, quantile, record
from tests.images import debian
from tests.images.debian import Debian, NoDebianError
from tests.images.packages import build, deb
from tests.testbed.enrolled import HELLO, Fleet, answers
from tests.testbed.process import Process
from tests.testbed.programs import missing

_RUNS = 5
# The terminal of docs/enrolment.md, with a proxy for a client on the same machine.
_CONFIGURATION = """\
[node]
number = ${node}
role = "terminal"
[tls]
pki_dir = "/var/lib/underpass/pki"
[enrolment]
url = "${url}"
[[path]]
name = "satellite"
neighbour = 1
remote = "127.0.0.1:${tcpcl}"
[[outlet]]
node = 1
[edge]
client_networks = ["127.0.0.0/8"]
[[edge.listener]]
name = "socks"
protocol = "socks5"
address = "127.0.0.1:${socks}"
"""
# A package of Debian that the gateway's depends on: apt knows it if it has lists of packages.
_DEPENDENCY = "^libelf1$"
# What systemd does when `systemctl start underpass` is typed: a container has no systemd. The
# unit's capabilities are missing, so that no congestion control is loaded as a BPF program.
START = (
    "install -d -o underpass -g underpass -m 0750 /run/underpass && "
    "runuser -u underpass -- underpass check-config && "
    "exec runuser -u underpass -- underpass run"
)


@dataclass(frozen=True)
class Step:
    """One step of the way to the first byte, and how long it took, s."""

    what: str
    took_s: float
    # A command that a person types in the container.
    is_typed: bool
    is_download: bool


class Way:
    """The steps from a container to a client's first byte, in their order.

    `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.steps: list[Step] = []
        self._clock = clock

    @contextmanager
    def step(self, what: str, *, typed: bool = False, download: bool = False) -> Iterator[None]:
        """Take a step: what is done meanwhile."""
        begun = self._clock()
        yield
        self.steps.append(Step(what, self._clock() - begun, typed, download))

    @property
    def commands(self) -> int:
        """Return how many commands were typed."""
        return sum(step.is_typed for step in self.steps)

    @property
    def beyond_downloads_s(self) -> float:
        """Return how long all took that was no download, s."""
        return sum(step.took_s for step in self.steps if not step.is_download)


def run(settings: Settings) -> Result:
    """Make a bare container a terminal again and again, each time a new one."""
    result = Result("bare-container")
    result.told["underpass"] = "container, hub and service on one loopback, HTTPS"
    if result.left_out(missing("underpass") or debian.missing()):
        return result
    folder = Path(tempfile.mkdtemp(prefix="underpass-bare-"))
    fleet = Fleet(folder)
    try:
        package = deb(build(folder / "packages"), "underpass")
        fleet.set_up()
        ways = [_way(fleet, package) for _ in range(settings.runs or _RUNS)]
    except NoDebianError as error:
        result.left_out(str(error))
        return result
    finally:
        fleet.close()
        shutil.rmtree(folder, ignore_errors=True)
    commands = [float(way.commands) for way in ways]
    result.records.append(record("bare-container.commands", "underpass", commands))
    beyond = [way.beyond_downloads_s for way in ways]
    result.records.append(record("bare-container.first-byte", "underpass", beyond))
    result.notes["steps, medians"] = medians(ways)
    return result


def medians(ways: Sequence[Way]) -> str:
    """Return each step with the median of its times; all ways have the same steps."""
    return "; ".join(
        f"{steps[0].what}: {quantile([one.took_s for one in steps], 0.5):.1f} s"
        for steps in zip(*(way.steps for way in ways), strict=True)
    )


def _way(fleet: Fleet, package: Path) -> Way:
    container = Debian(fleet.dir / "container", bare=True)
    token = fleet.token_for(_CONFIGURATION)
    way = Way()
    try:
        _take(way, fleet, container, package, token)
    finally:
        shutil.rmtree(container.folder, ignore_errors=True)
    say(f"bare-container: {way.commands} commands, {way.beyond_downloads_s:.1f} s")
    return way


def _take(way: Way, fleet: Fleet, container: Debian, package: Path, token: str) -> None:
    install = ("apt-get", "install", "--yes", f"/{package.name}")
    shutil.copy(package, container.folder)
    if not container.run("apt-cache", "search", "--names-only", _DEPENDENCY):
        with way.step("apt-get update", typed=True, download=True):
            container.run("apt-get", "update")
    with way.step("what it depends on", download=True):
        container.run(*install, "--download-only")
    with way.step("apt-get install", typed=True):
        container.run(*install)
    with way.step("underpass enroll", typed=True):
        container.run("underpass", "enroll", fleet.url, "--token", token)
    terminal: Process | None = None
    try:
        with way.step("systemctl start underpass", typed=True):
            command = container.argv("sh", "-c", START)
            terminal = Process("terminal", command, log_dir=fleet.dir)
            terminal.wait_until(lambda: answers(fleet.ports["socks"]))
        with way.step("the client's first byte"):
            if fleet.first_bytes() != HELLO:
                raise RuntimeError("another origin has answered")
    finally:
        container.end("underpass")
        if terminal is not None:
            terminal.stop()
