"""The base classes of subjects."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass

from tests.testbed import addresses, ports
from tests.testbed.client import transfer
from tests.testbed.client.route import DIRECT, Route
from tests.testbed.namespace import Namespace
from tests.testbed.topology import Testbed

# `told` of a subject that uses plain TCP.
COLD = "nothing; cold: a new connection each run"


class UnavailableError(RuntimeError):
    """This machine cannot run the subject; the text says what is missing."""


Unavailable = UnavailableError


@dataclass(frozen=True)
class Access:
    """The way by which a client reaches an origin's port through a subject.

    A transfer that reaches its deadline is reset, so that the next run has the hop for itself.
    """

    client: Namespace
    route: Route
    host: str
    port: int

    def download(
        self, size: int, seed: int, deadline_s: float, *, stop: threading.Event | None = None
    ) -> transfer.Transfer:
        """Fetch `size` bytes once, until the deadline or until told to stop."""
        return transfer.download(
            self.client,
            self.host,
            size,
            port=self.port,
            route=self.route,
            seed=seed,
            deadline_s=deadline_s,
            stop=stop,
            reset=True,
        )

    def upload(
        self, size: int, seed: int, deadline_s: float, *, query: str = ""
    ) -> transfer.Transfer:
        """Send `size` bytes once, until the deadline."""
        return transfer.upload(
            self.client,
            self.host,
            size,
            port=self.port,
            route=self.route,
            seed=seed,
            deadline_s=deadline_s,
            query=query,
            reset=True,
        )


class Subject(ABC):
    """A way for TCP across the hop; started once per test bed, then measured in series."""

    name: str
    # What it is told of the hop, and whether its connections exist before a run.
    told: str

    @abstractmethod
    def start(self, testbed: Testbed) -> None:
        """Start its programs; raise `UnavailableError` if something is missing."""

    @abstractmethod
    def access(self, origin_port: int = ports.HTTP) -> Access:
        """Return the way to a port of the origin."""

    # Most subjects have nothing to do around a run.
    def before_run(self) -> None:  # noqa: B027
        """Prepare shared state, such as the origin's congestion control."""

    def after_run(self) -> None:  # noqa: B027
        """Stop affecting plain IP, for the subjects that are measured on it."""


class TerminalRelay(Subject):
    """A subject whose near end, at the terminal, relays each of its ports to one of the origin."""

    # Maps an origin's port to the near end's.
    relayed: dict[int, int]

    def access(self, origin_port: int = ports.HTTP) -> Access:
        """Return the near end's port."""
        host = addresses.terminal_lan(0)
        return Access(self.client, DIRECT, host, self.relayed[origin_port])

    client: Namespace
