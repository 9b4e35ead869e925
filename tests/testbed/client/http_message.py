"""HTTP/1.1 messages on a socket, with details that libraries hide: interim responses, trailers,
the end."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

Fields = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Request:
    """A request; only the given fields frame its body."""

    method: str
    path: str
    fields: Fields = ()
    body: bytes = b""
    version: str = "1.1"

    def head(self, target: str, host: str) -> bytes:
        """Return the head for a request target; Host comes first."""
        lines = [f"{self.method} {target} HTTP/{self.version}", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in self.fields]
        return "\r\n".join([*lines, "", ""]).encode()


@dataclass
class Response:
    """A response; field names are in lower case, and the body is without chunk framing."""

    status: int
    reason: str
    fields: list[tuple[str, str]]
    body: bytes = b""
    trailers: list[tuple[str, str]] = field(default_factory=list)
    # The statuses of the interim responses before it.
    interim: list[int] = field(default_factory=list)

    def values(self, name: str) -> list[str]:
        """Return the values of a field."""
        return [value for known, value in self.fields if known == name]


class Reader:
    """Reads a connection message by message."""

    def __init__(self, sock: socket.socket) -> None:
        self._file = sock.makefile("rb")

    def response(self, method: str) -> Response:
        """Read the response to a request of `method`, interim ones included."""
        interim = []
        while True:
            response = self.head()
            if response.status < 200 and response.status != 101:
                interim.append(response.status)
                continue
            response.interim = interim
            self._body(response, method)
            return response

    def head(self) -> Response:
        """Read one head."""
        _, status, reason = (self._line() + " ").split(" ", 2)
        return Response(int(status), reason.strip(), self._fields())

    def exactly(self, count: int) -> bytes:
        """Read `count` bytes."""
        data = self._file.read(count)
        if len(data) < count:
            raise ConnectionError(f"the peer ended after {len(data)} of {count} bytes")
        return data

    def rest(self) -> bytes:
        """Read until the peer ends."""
        return self._file.read()

    def _body(self, response: Response, method: str) -> None:
        lengths = set(response.values("content-length"))
        if method == "HEAD" or response.status in (101, 204, 304):
            return
        if response.values("transfer-encoding"):
            while size := int(self._line().split(";")[0], 16):
                response.body += self.exactly(size)
                self.exactly(2)
            response.trailers = self._fields()
        elif lengths:
            (length,) = lengths
            response.body = self.exactly(int(length))
        else:
            response.body = self.rest()

    def _fields(self) -> list[tuple[str, str]]:
        fields = []
        while line := self._line():
            name, _, value = line.partition(":")
            fields.append((name.lower(), value.strip()))
        return fields

    def _line(self) -> str:
        line = self._file.readline(65536)
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"the peer ended within a line: {line!r}")
        return line[:-2].decode("latin-1")
