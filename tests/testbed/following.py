"""The control service's server-sent events, received in a thread."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tests.testbed import addresses
from tests.testbed.control import PORT, Control

_AGAIN_S = 0.5
# The service sends a comment each 15 s.
_SILENT_S = 40.0


@dataclass(frozen=True)
class Event:
    """One event, and its time of arrival, s since the Unix epoch."""

    kind: str
    data: dict[str, Any]
    came_s: float


class Follower:
    """A context that receives events of some kinds, also across restarts of the service."""

    def __init__(self, control: Control, kinds: Sequence[str]) -> None:
        self._control = control
        self._kinds = kinds
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._follows = threading.Event()
        self._sock: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._follows.wait(60):
            raise TimeoutError("the control service tells no events")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._sock:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def next(self, timeout_s: float) -> Event | None:
        """Return the next event, None if none comes within the timeout."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def come(self) -> Iterator[Event]:
        """Yield all events received so far."""
        while event := self.next(0.0):
            yield event

    def _run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError):
                self._follow()
            self._ended.wait(_AGAIN_S)

    def _follow(self) -> None:
        with self._control.namespace.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            self._sock = sock
            sock.settimeout(_SILENT_S)
            sock.connect((addresses.CONTROL, PORT))
            sock.sendall(
                f"GET /v1/events?kinds={','.join(self._kinds)} HTTP/1.0\r\n"
                f"Host: control\r\nAuthorization: Bearer {self._control.operator}\r\n\r\n".encode()
            )
            kind = ""
            for line in sock.makefile("r", encoding="utf-8", newline="\n"):
                name, _, value = line.rstrip("\r\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    self._events.put(Event(kind, json.loads(value), time.time()))
                elif not name:
                    # The head is complete: all events from now on will come.
                    self._follows.set()
