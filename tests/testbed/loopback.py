"""Everything in one namespace: what the programs themselves cost, without a hop."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.testbed import addresses, ports
from tests.testbed.namespace import Namespace, instance_prefix
from tests.testbed.process import Process
from tests.testbed.profile import PERFECT, Profile
from tests.testbed.programs import origin_argv
from tests.testbed.topology import Terminal, listens


class Loopback:
    """Terminal, hub and origin on the loopback of one namespace, by the test bed's addresses."""

    profile = PERFECT
    terrestrial_profile: Profile | None = None

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.dir = Path(tempfile.mkdtemp(prefix="underpass-loopback-"))

    def __enter__(self) -> Self:
        try:
            self.hub = Namespace(instance_prefix() + "loopback", forwarding=False)
            self._stack.callback(self.hub.delete)
            for address in (
                addresses.HUB_SAT,
                addresses.HUB_WAN,
                addresses.ORIGIN,
                addresses.terminal_lan(0),
            ):
                self.hub.ip("address", "add", f"{address}/32", "dev", "lo")
            # A hub announces the families that it has a way out for.
            self.hub.ip("route", "add", "default", "dev", "lo")
            self.terminals = [Terminal(0, self.hub, self.hub)]
            origin = self.start("origin", origin_argv(), self.hub)
            origin.wait_until(lambda: listens(self.hub, ports.RESETTING))
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
        if error is None:
            shutil.rmtree(self.dir)
        else:
            error.add_note(f"the logs: {self.dir}")

    def start(
        self,
        name: str,
        argv: Sequence[str],
        namespace: Namespace | None = None,
        env: dict[str, str] | None = None,
    ) -> Process:
        """Start a program that ends with the namespace."""
        process = Process(name, argv, log_dir=self.dir, namespace=namespace, env=env)
        self._stack.callback(process.stop)
        return process
