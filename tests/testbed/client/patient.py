"""Many long downloads during disruptions: how many survive, and how long they wait."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.testbed.client.route import bracketed
from tests.testbed.content import ContentError, Verifier, block_body
from tests.testbed.namespace import Namespace

_SEEDS = 16


@dataclass
class _Member:
    sock: socket.socket
    verifier: Verifier
    request: bytes
    head: bytes = b""
    # When its last bytes came, by `time.monotonic()`.
    fresh_s: float = 0.0
    error: str | None = None


class PatientCrowd:
    """Downloads of `size` bytes each, begun together, and watched for any time."""

    def __init__(
        self,
        namespace: Namespace,
        host: str,
        *,
        clients: int,
        size: int,
        query: str,
        port: int,
        via: Sequence[tuple[str, int]],
    ) -> None:
        """Connect all of them, in turn through each of `via`.

        These are HTTP forward proxies, or plain relays to the origin.
        """
        self.size = size
        self._longest_gap_s = 0.0
        self._selector = selectors.DefaultSelector()
        self._members: list[_Member] = []
        for seed in range(_SEEDS):
            block_body(seed)
        authority = f"{bracketed(host)}:{port}"
        with namespace.entered():
            for index in range(clients):
                address = via[index % len(via)]
                family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
                sock = socket.socket(family, socket.SOCK_STREAM)
                sock.setblocking(False)
                sock.connect_ex(address)
                # Neighbours on the same way have different content, too.
                seed = index // len(via) % _SEEDS
                target = f"http://{authority}/bytes/{size}?seed={seed}{query}"
                request = f"GET {target} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()
                member = _Member(sock, Verifier(seed), request)
                self._members.append(member)
                self._selector.register(sock, selectors.EVENT_WRITE, member)

    def watch(self, seconds: float) -> None:
        """Receive for a time."""
        end = time.monotonic() + seconds
        buffer = memoryview(bytearray(1 << 18))
        while (left := end - time.monotonic()) > 0:
            if not self._selector.get_map():
                return
            for key, _ in self._selector.select(left):
                self._serve(key.data, buffer)

    def fresh(self, since: float) -> int:
        """Return how many have received bytes since a time, or are complete."""
        return sum(
            member.error is None
            and (member.fresh_s >= since or member.verifier.offset >= self.size)
            for member in self._members
        )

    def complete(self) -> int:
        """Return how many have received all bytes correctly."""
        return sum(
            member.error is None and member.verifier.offset >= self.size for member in self._members
        )

    def wrong(self) -> int:
        """Return how many had bytes lost, changed or duplicated."""
        return sum(member.error == ContentError.__name__ for member in self._members)

    def take_longest_gap(self) -> float:
        """Return the longest time between two arrivals at one of them, s, since the last call."""
        longest, self._longest_gap_s = self._longest_gap_s, 0.0
        return longest

    def errors(self) -> dict[str, int]:
        """Return the number of premature ends, by kind."""
        kinds: dict[str, int] = {}
        for member in self._members:
            if member.error:
                kinds[member.error] = kinds.get(member.error, 0) + 1
        return kinds

    def close(self) -> None:
        """End all that still run."""
        for member in self._members:
            member.sock.close()
        self._selector.close()

    def _serve(self, member: _Member, buffer: memoryview) -> None:
        try:
            if member.request:
                member.sock.send(member.request)
                member.request = b""
                self._selector.modify(member.sock, selectors.EVENT_READ, member)
                return
            count = member.sock.recv_into(buffer)
            if count:
                self._take(member, buffer[:count])
            elif member.verifier.offset < self.size:
                member.error = "ended early"
        except (OSError, ContentError) as error:
            member.error = type(error).__name__
        if member.error or member.verifier.offset >= self.size:
            self._selector.unregister(member.sock)
            member.sock.close()

    def _take(self, member: _Member, data: memoryview) -> None:
        now = time.monotonic()
        if member.fresh_s:
            self._longest_gap_s = max(self._longest_gap_s, now - member.fresh_s)
        member.fresh_s = now
        if not member.head.endswith(b"\r\n\r\n"):
            whole = member.head + bytes(data)
            end = whole.find(b"\r\n\r\n")
            if end < 0:
                member.head = whole
                return
            if not whole.startswith(b"HTTP/1.1 200"):
                member.error = f"answer {whole[9:12].decode(errors='replace')}"
                return
            data = memoryview(whole[end + 4 :])
            member.head = whole[: end + 4]
        member.verifier.feed(data)
