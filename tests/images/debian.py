"""A Debian 12 for the tests, in a folder: packages are installed there as on a machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

_ROOT = Path(__file__).parents[2]
# The packages' dependencies that Debian's minimal system lacks.
_PACKAGES = "ca-certificates,iproute2,libelf1,nftables,python3,zlib1g"
# Confines a command to the folder; all inside ends with the process that entered.
_ENTER = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'


class NoDebianError(Exception):
    """A Debian cannot be made here; the text says why."""


def missing() -> str | None:
    """Say why this machine cannot make one, None if it can."""
    if os.geteuid() != 0:
        return "only root makes a Debian in a folder"
    if shutil.which("debootstrap") is None:
        return "debootstrap is not there: `.ci/setup --images` installs it"
    return None


class Debian:
    """One such system, without an init: the test does systemd's part."""

    def __init__(self, folder: Path, *, bare: bool = False) -> None:
        """Make it, from a base that is made once, in the build folder.

        A bare one has Debian's minimal system alone, and the lists from which apt knows the rest.
        """
        if absent := missing():
            raise NoDebianError(absent)
        target = Path(os.environ.get("CARGO_TARGET_DIR") or _ROOT / "target")
        base = target / f"debian-bookworm{'-bare' if bare else ''}"
        if not base.exists():
            made = base.with_suffix(".new")
            shutil.rmtree(made, ignore_errors=True)
            command = ["debootstrap", "--variant=minbase", "bookworm", str(made)]
            if not bare:
                command.insert(2, f"--include={_PACKAGES}")
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoDebianError(f"debootstrap: {done.stdout.strip().splitlines()[-1:]}")
            made.rename(base)
        subprocess.run(["cp", "-a", base, folder], check=True)
        self.folder = folder

    def argv(self, *command: str) -> list[str]:
        """Return the command line that runs a command inside."""
        enter = ["unshare", "--mount", "--propagation", "private", "bash", "-c", _ENTER]
        return [*enter, str(self.folder), *command]

    def run(self, *command: str) -> str:
        """Run a command inside, which must succeed, and return all its output."""
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        # debootstrap has used them, too, if there are any.
        proxies = ("http_proxy", "https_proxy", "no_proxy")
        environment |= {name: os.environ[name] for name in proxies if name in os.environ}
        done = subprocess.run(
            self.argv(*command),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}"
        return done.stdout

    def processes(self, name: str) -> set[int]:
        """Return the ids of the processes inside that run a program.

        The machine's other processes are visible inside, too, so a name alone is not enough.
        """
        found = set()
        for place in Path("/proc").iterdir():
            if not place.name.isdigit():
                continue
            try:
                inside = (place / "root").samefile(self.folder)
                program = (place / "comm").read_text().strip()
            except OSError:
                # The process has ended meanwhile.
                continue
            if inside and program == name:
                found.add(int(place.name))
        return found

    def end(self, name: str) -> None:
        """End the processes inside that run a program, by SIGTERM."""
        for pid in self.processes(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def install(self, package: Path) -> str:
        """Install a package's file, also over an installed version."""
        shutil.copy(package, self.folder)
        told = self.run("dpkg", "--force-confold", "--install", f"/{package.name}")
        (self.folder / package.name).unlink()
        return told

    def files(self) -> set[str]:
        """Return all files, except dpkg's database, logs, caches and other passing files."""
        passed = ("var/lib/dpkg", "var/log", "var/cache", "proc", "tmp", "run")
        found = set()
        for folder, folders, files in os.walk(self.folder):
            place = Path(folder).relative_to(self.folder).as_posix()
            if place.startswith(passed) or place.endswith("__pycache__"):
                folders.clear()
                continue
            found |= {f"{place}/{name}" for name in files}
        # Each change of the accounts leaves the former file beside the new one.
        return {name for name in found if not name.startswith("etc/") or not name.endswith("-")}
