"""Network namespaces: makes, enters and removes them.

A name carries the owner's process id, which tells the leftovers of a killed run from the
namespaces of a running one.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_NAME = re.compile(r"^up([0-9a-f]+)\.\d+-")
_HOST_INTERFACE = re.compile(r"up([0-9a-f]+)[g-z]$")
_NETNS_DIR = Path("/run/netns")
# `ip netns exec` mounts the files of the folder with the namespace's name over those of /etc.
_ETC_DIR = Path("/etc/netns")
_instances = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)

# Windows must not limit the subjects without a proxy: 3 x 140 Mbit/s x 0.6 s is 32 MB, and the
# kernel counts about twice the payload. With saved metrics of earlier connections, runs would
# depend on their order.
_SYSCTLS = {
    "net.ipv4.tcp_rmem": "4096 131072 134217728",
    "net.ipv4.tcp_wmem": "4096 65536 134217728",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv6.conf.all.accept_dad": "0",
    "net.ipv6.conf.default.accept_dad": "0",
    "net.ipv4.ip_local_port_range": "10240 65000",
}


class CommandError(RuntimeError):
    """A command that builds the test bed failed; the text has the command and its errors."""


def command(argv: Sequence[str]) -> str:
    """Run `argv` and return its output; raise `CommandError` with its errors."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(f"`{' '.join(argv)}` failed: {done.stderr.strip()}")
    return done.stdout


def unprivileged_reason() -> str | None:
    """Return why this process cannot make network namespaces, or None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun is missing, so satlink cannot make its interfaces"
    return None


def instance_prefix() -> str:
    """Return a prefix for the namespaces of one test bed, unique on this machine."""
    return f"up{os.getpid():x}.{next(_instances)}-"


class Namespace:
    """One network namespace, with loopback up and the test bed's settings."""

    def __init__(self, name: str, *, forwarding: bool) -> None:
        self.name = name
        command(["ip", "netns", "add", name])
        self.ip("link", "set", "lo", "up")
        self.sysctl(**_SYSCTLS)
        if forwarding:
            self.sysctl(**{"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"})

    def argv(self, *argv: str) -> list[str]:
        """Return the command line that runs `argv` inside."""
        return ["ip", "netns", "exec", self.name, *argv]

    def ip(self, *args: str) -> str:
        """Run `ip` inside."""
        return command(["ip", "-n", self.name, *args])

    def run(self, *argv: str) -> str:
        """Run a command inside to its end and return its output."""
        return command(self.argv(*argv))

    def sysctl(self, **settings: str) -> None:
        """Set kernel parameters of this namespace."""
        self.run("sysctl", "-q", "-w", *(f"{key}={value}" for key, value in settings.items()))

    def set_resolver(self, address: str) -> None:
        """Have programs that are started inside ask this DNS server."""
        folder = _ETC_DIR / self.name
        folder.mkdir(parents=True)
        (folder / "resolv.conf").write_text(f"nameserver {address}\n")

    def set_congestion_control(self, name: str, *, to: str | None = None) -> None:
        """Set the congestion control of new connections over the gateways and TUN devices.

        With `to`, only of those that take the route to that network. It is set on routes: a
        namespace's parameter `tcp_congestion_control` accepts only controls that the whole machine
        allows to everyone.
        """
        for family in ("-4", "-6"):
            for route in command(["ip", "-n", self.name, family, "route", "show"]).splitlines():
                words = route.split()
                if "kernel" in words or not words or to not in (None, words[0]):
                    continue
                if "congctl" in words:
                    place = words.index("congctl")
                    del words[place : place + 2]
                self.ip(family, "route", "replace", *words, "congctl", name)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Move the calling thread inside; sockets that it makes there stay in this namespace."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(_NETNS_DIR / self.name)
            try:
                yield
            finally:
                _setns(Path(f"/proc/self/fd/{own}"))
        finally:
            os.close(own)

    def socket(self, family: int, kind: int) -> socket.socket:
        """Return a new socket in this namespace."""
        with self.entered():
            return socket.socket(family, kind)

    def processes(self) -> list[int]:
        """Return the ids of the processes inside."""
        return [int(pid) for pid in command(["ip", "netns", "pids", self.name]).split()]

    def delete(self) -> None:
        """Remove the namespace with its interfaces, routes and rules."""
        _delete(self.name)


def join(left: Namespace, left_interface: str, right: Namespace, right_interface: str) -> None:
    """Join two namespaces by a pair of veth interfaces, both up."""
    left.ip(
        *("link", "add", left_interface, "type", "veth"),
        *("peer", "name", right_interface, "netns", right.name),
    )
    left.ip("link", "set", left_interface, "up")
    right.ip("link", "set", right_interface, "up")


def leftovers() -> list[str]:
    """Return the namespaces of test beds whose owners no longer run."""
    if not _NETNS_DIR.is_dir():
        return []
    return sorted(
        entry.name
        for entry in _NETNS_DIR.iterdir()
        if (match := _NAME.match(entry.name)) and not _runs(match[1])
    )


def _runs(owner: str) -> bool:
    """Tell whether the owner in a test bed's name runs; it is a process id in hexadecimal."""
    return Path(f"/proc/{int(owner, 16)}").exists()


def host_interface(suffix: str) -> str:
    """Return a name for an interface in this machine's own namespace; suffixes are g to z."""
    return f"up{os.getpid():x}{suffix}"


def sweep() -> list[str]:
    """Remove the leftovers of killed test beds; return the names of the namespaces."""
    for interface in Path("/sys/class/net").iterdir():
        # The kernel keeps a namespace, and so the interface's other end, while a killed
        # program's connection still waits to close.
        match = _HOST_INTERFACE.match(interface.name)
        if match and not _runs(match[1]):
            command(["ip", "link", "delete", interface.name])
    names = leftovers()
    for name in names:
        try:
            for pid in command(["ip", "netns", "pids", name]).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            _delete(name)
        except CommandError:
            # Another test bed that starts at the same time may have removed it.
            if (_NETNS_DIR / name).exists():
                raise
    return names


def _delete(name: str) -> None:
    shutil.rmtree(_ETC_DIR / name, ignore_errors=True)
    command(["ip", "netns", "delete", name])


def _setns(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, _CLONE_NEWNET) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"setns to {path}: {os.strerror(error)}")
    finally:
        os.close(fd)
