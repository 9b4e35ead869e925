"""An origin that counts its requests by path, and answers as the path says."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from tests.testbed.namespace import Namespace

PORT = 8099


def content(size: int) -> bytes:
    """Return the body of that many bytes that `/…?bytes=` answers with."""
    return bytes(index * 131 & 0xFF ^ (index >> 8) & 0xFF for index in range(size))


class CountingOrigin:
    """A context manager: serves in a namespace on `PORT`.

    A path is `/name/bytes/delay_ms`: the request is counted when it has arrived whole, and answered
    with this many bytes after this delay.
    """

    def __init__(self, namespace: Namespace) -> None:
        self.counts: Counter[str] = Counter()
        self.bodies: dict[str, bytes] = {}
        sock = namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("0.0.0.0", PORT))  # noqa: S104 - its own namespace
        sock.listen(256)
        self._server = ThreadingHTTPServer(("", PORT), _handler(self), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = sock
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(origin: CountingOrigin) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _, name, size, delay_ms = self.path.split("/")
            length = int(self.headers.get("Content-Length") or 0)
            origin.bodies[name] = self.rfile.read(length)
            origin.counts[name] += 1
            time.sleep(int(delay_ms) / 1000)
            body = content(int(size))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Name", name)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    return Handler
