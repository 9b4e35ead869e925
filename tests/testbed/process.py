"""Programs of the test bed: started in a namespace, logged to a file, ended with the test bed."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.testbed.namespace import Namespace

# A node drains for some seconds after SIGTERM before its end is forced.
_TERM_S = 10.0


class ProcessError(RuntimeError):
    """A program of the test bed ended or did not become ready; the text has its last log lines."""


_GOES_ON = re.compile(r"another process goes on process=(\d+)")


class Process:
    """One program; it dies with the thread that started it, even if that is killed."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log_dir: Path,
        namespace: Namespace | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        # The process that continues for it after an upgrade.
        self._next: int | None = None
        self.log_path = log_dir / f"{name}.log"
        inside = namespace.argv(*argv) if namespace else list(argv)
        with self.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *inside],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                # Ctrl-C is for the test bed, which then ends its programs in order.
                process_group=0,
                preexec_fn=_raise_open_files,
            )

    @property
    def pid(self) -> int:
        """Return the program's process id: `ip netns exec` becomes the program."""
        return self._next or self._popen.pid

    def goes_on_as(self, pid: int) -> None:
        """Follow another process in its place, which is no child of this one."""
        self._next = pid

    def follow(self) -> bool:
        """Follow the process that continues for it, by its log; return whether there is one."""
        said = self._said()
        # The log may also name a process that was killed since.
        if said and int(said[-1]) != self._next and Path(f"/proc/{said[-1]}/exe").exists():
            self._next = int(said[-1])
            return True
        return False

    def _said(self) -> list[str]:
        """Return the processes that have gone on for it, by its log."""
        with self.log_path.open(errors="replace") as log:
            return [found[1] for line in log if (found := _GOES_ON.search(line))]

    def running(self) -> bool:
        """Tell whether it still runs."""
        ended = self._popen.poll() is not None
        return Path(f"/proc/{self._next}/exe").exists() if self._next else not ended

    def killed(self) -> bool:
        """Tell whether SIGKILL ended it; a process that is no child counts as killed.

        So does one that has ended in order, if it was the last to run of those that were upgraded.
        """
        ended = self._popen.poll()
        return (
            self._next is not None
            or ended == -signal.SIGKILL
            or (ended == 0 and self._said() != [])
        )

    def log_tail(self, lines: int = 30) -> str:
        """Return the end of its log."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
        """Wait until `ready` is true; raise with the log if it ends or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running():
                raise ProcessError(
                    f"{self.name} ended with status {self._popen.returncode}:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise ProcessError(
                    f"{self.name} is not ready after {timeout_s} s:\n{self.log_tail()}"
                )
            time.sleep(0.02)

    def stop(self) -> int:
        """End it by SIGTERM, or by SIGKILL if that is not enough; return its exit status."""
        self.follow()
        self._stop_next()
        if self.running():
            self._popen.send_signal(signal.SIGTERM)
            try:
                self._popen.wait(_TERM_S)
            except subprocess.TimeoutExpired:
                self._popen.kill()
        return self._popen.wait()

    def _stop_next(self) -> None:
        """End the process that continues for it."""
        if self._next is None:
            return
        deadline = time.monotonic() + _TERM_S
        sent: int = signal.SIGTERM
        while self.running():
            with suppress(ProcessLookupError):
                os.kill(self._next, sent)
            time.sleep(0.02)
            # A second SIGTERM would cut its draining short.
            sent = 0 if time.monotonic() < deadline else signal.SIGKILL
        self._next = None

    def kill(self) -> None:
        """End it as a crash would."""
        if self._next is not None:
            with suppress(ProcessLookupError):
                os.kill(self._next, signal.SIGKILL)
            self._next = None
        self._popen.kill()
        self._popen.wait()

    def resident_bytes(self) -> int:
        """Return its resident memory without file-backed pages, bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise ProcessError(f"{self.name} has no RssAnon")

    def processor_s(self) -> float:
        """Return the processor time that it has used so far, s."""
        return processor_s(self.pid)


def processor_s(pid: int) -> float:
    """Return the processor time that a process and its threads have used so far, s."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def _raise_open_files() -> None:
    """Allow as many open files as the system permits: thousands of streams need them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
