"""A PostgreSQL server for tests, from Debian's package, on a loopback port with a new folder."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from tests.free_port import free_port

_START_S = 120
# PostgreSQL refuses to run as root; Debian's package brings this user.
_USER = "postgres"


def missing() -> str | None:
    """Return why no PostgreSQL can be started here, None if one can."""
    if _programs() is None:
        return "no PostgreSQL in /usr/lib/postgresql: Debian's package `postgresql` is missing"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(_USER)
        except KeyError:
            return f"root may not run PostgreSQL, and there is no user {_USER}"
    return None


class Server:
    """A running server; it can be stopped and started again as in a failure."""

    def __init__(self, folder: Path, programs: Path, port: int, durable: bool) -> None:
        self._folder = folder
        self._programs = programs
        self.port = port
        self._durable = durable
        self._up = False

    def url(self, database: str) -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c max_connections=200"
            f" -c unix_socket_directories={self._folder}"
        )
        if not self._durable:
            # Autovacuum would process the databases of all tests, ten of them a second.
            options += " -c fsync=off -c full_page_writes=off -c autovacuum=off"
        log = str(self._folder / "log")
        self._up = True
        self._control("-w", "-t", str(_START_S), "-l", log, "-o", options, "start")

    def stop(self) -> None:
        """End it at once, if it runs, as a crash does: its clients' connections break."""
        if not self._up:
            return
        self._up = False
        self._control("-m", "immediate", "-w", "stop")

    def sql(self, statement: str) -> None:
        """Execute a statement. The calling thread must not run an event loop."""
        asyncio.run(self._execute(statement))

    async def _execute(self, statement: str) -> None:
        # By psql it would cost a process, for each of hundreds of databases two.
        connection = await asyncpg.connect(self.url("postgres"), ssl=False)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def initialise(self) -> None:
        """Make an empty cluster."""
        data = str(self._folder / "data")
        run(str(self._programs / "initdb"), "-D", data, "-U", _USER, "-A", "trust", "-E", "UTF8")

    def _control(self, *arguments: str) -> None:
        run(str(self._programs / "pg_ctl"), "-D", str(self._folder / "data"), *arguments)


def run(*command: str) -> None:
    """Run one of PostgreSQL's programs, as its user."""
    as_user = {"user": _USER, "group": _USER} if os.geteuid() == 0 else {}
    with tempfile.TemporaryFile() as output:
        # Into a file: the server inherits the output and would keep a pipe open.
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            check=False,
            extra_groups=[] if as_user else None,
            **as_user,  # type: ignore[call-overload]
        )
        if done.returncode:
            output.seek(0)
            raise RuntimeError(f"{command[0]} failed: {output.read().decode(errors='replace')}")


@contextmanager
def server(*, durable: bool = False) -> Iterator[Server]:
    """Start a server; it is removed afterwards, with its data.

    A test's data need not wait for the disk, since it is worthless afterwards; `durable` is for
    measurements.
    """
    programs = _programs()
    assert programs is not None
    # Not in pytest's folder: that is root's alone.
    folder = Path(tempfile.mkdtemp(prefix="underpass-postgresql-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, _USER, _USER)
        running = Server(folder, programs, free_port(), durable)
        running.initialise()
        running.start()
        try:
            yield running
        finally:
            running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return found[-1].parent if found else None
