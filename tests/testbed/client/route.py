"""How a client reaches an origin: directly, or through one of a node's proxies."""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass
from typing import Literal

from tests.testbed.namespace import Namespace


class ProxyError(ConnectionError):
    """The proxy refused; `code` is the SOCKS reply or the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Route:
    """`forward` sends HTTP requests to the proxy in absolute form; `direct` has no proxy."""

    kind: Literal["direct", "socks5", "connect", "forward"] = "direct"
    proxy: tuple[str, int] | None = None

    def connect(
        self, namespace: Namespace, host: str, port: int, *, timeout_s: float
    ) -> socket.socket:
        """Return a connection to `host` (an address, or a name that the proxy resolves)."""
        address = (host, port) if self.kind == "direct" else self.proxy
        assert address is not None
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        sock = namespace.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.connect(address)
            if self.kind == "socks5":
                _socks5(sock, host, port)
            elif self.kind == "connect":
                _http_connect(sock, host, port)
        except BaseException:
            sock.close()
            raise
        return sock

    def opening(self, host: str, port: int) -> bytes:
        """Return all bytes that a client sends to the proxy if it does not wait for answers."""
        if self.kind == "socks5":
            return b"\x05\x01\x00" + _socks5_request(host, port)
        assert self.kind == "connect"
        return _connect_request(host, port)

    def opened(self, answers: bytes) -> bool:
        """Tell whether these are all of the proxy's answers to `opening`.

        Raise `ProxyError` if one of them is a refusal.
        """
        if self.kind == "socks5":
            if answers[:2] not in (b"", b"\x05", b"\x05\x00") or answers[3:4] not in (b"", b"\0"):
                raise ProxyError(answers[-1], f"SOCKS answers {answers.hex()}")
            length = {1: 4, 4: 16}[answers[5]] if len(answers) > 5 else len(answers)
            return len(answers) == 2 + 4 + length + 2
        if not b"HTTP/1.1 200 "[: len(answers)] == answers[:13]:
            raise ProxyError(0, f"answer to CONNECT: {answers!r}")
        return answers.endswith(b"\r\n\r\n")

    def target(self, host: str, port: int, path: str) -> str:
        """Return the request target of an HTTP request on this route."""
        if self.kind != "forward":
            return path
        return f"http://{bracketed(host)}:{port}{path}"


DIRECT = Route()


def reset_when_closed(sock: socket.socket) -> None:
    """Have a connection reset when it is closed, which drops its unsent bytes.

    An ordinary close would go on until they are delivered.
    """
    # `struct linger` with a time of zero (socket(7)).
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def bracketed(host: str) -> str:
    """Return a host in its form for URLs."""
    return f"[{host}]" if ":" in host else host


def receive_exactly(sock: socket.socket, count: int) -> bytes:
    """Receive `count` bytes; raise if the peer ends the connection before."""
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise ConnectionError(f"the peer ended after {len(data)} of {count} bytes")
        data += piece
    return data


def receive_head(sock: socket.socket) -> bytes:
    """Receive an HTTP head to its empty line, and nothing after it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += receive_exactly(sock, 1)
    return head


def _socks5(sock: socket.socket, host: str, port: int) -> None:
    """RFC 1928 without authentication."""
    sock.sendall(b"\x05\x01\x00")
    if receive_exactly(sock, 2) != b"\x05\x00":
        raise ProxyError(0xFF, "the SOCKS proxy wants authentication")
    sock.sendall(_socks5_request(host, port))
    _, reply, _, kind = receive_exactly(sock, 4)
    receive_exactly(sock, {1: 4, 4: 16}.get(kind) or receive_exactly(sock, 1)[0])
    receive_exactly(sock, 2)
    if reply != 0:
        raise ProxyError(reply, f"SOCKS reply {reply}")


def _socks5_request(host: str, port: int) -> bytes:
    return b"\x05\x01\x00" + _socks5_address(host) + struct.pack(">H", port)


def _socks5_address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return b"\x03" + bytes([len(host)]) + host.encode()
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


def _http_connect(sock: socket.socket, host: str, port: int) -> None:
    sock.sendall(_connect_request(host, port))
    status = receive_head(sock).split(b"\r\n")[0].decode("latin-1")
    code = int(status.split(" ")[1])
    if code != 200:
        raise ProxyError(code, status)


def _connect_request(host: str, port: int) -> bytes:
    authority = f"{bracketed(host)}:{port}"
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()
