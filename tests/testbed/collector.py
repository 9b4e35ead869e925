"""A collector of traces: receives OTLP over HTTP, and stores the spans."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.request import Request, urlopen

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.testbed.namespace import Namespace

PORT = 4318
URL = f"http://127.0.0.1:{PORT}"
_KIND = "application/x-protobuf"


@dataclass(frozen=True)
class Span:
    """A received span."""

    service: str
    name: str
    trace: str
    id: str
    # Empty for a root.
    parent: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    # Names of the events, in order.
    events: tuple[str, ...]
    # The spans that it links to.
    links: tuple[str, ...]
    error: str


class Collector:
    """A context manager that listens on loopback, here or in namespaces.

    `answer` is the status of its answers; with None it accepts requests and never answers. With
    `forward`, it also posts all that it receives to the collector at this address.
    """

    def __init__(
        self,
        *namespaces: Namespace,
        port: int = PORT,
        answer: int | None = 200,
        forward: str | None = None,
    ) -> None:
        self.answer = answer
        self.requests = 0
        self._spans: list[Span] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._stack = contextlib.ExitStack()
        self._namespaces = namespaces
        self.port = port
        self._forward = forward

    def __enter__(self) -> Self:
        sockets = [one.socket(socket.AF_INET, socket.SOCK_STREAM) for one in self._namespaces]
        for listening in sockets or [socket.socket(socket.AF_INET, socket.SOCK_STREAM)]:
            server = ThreadingHTTPServer(
                ("127.0.0.1", self.port), self._handler(), bind_and_activate=False
            )
            server.socket.close()
            server.socket = listening
            server.daemon_threads = True
            # Do not wait for the threads of requests that are never answered.
            server.block_on_close = False
            server.server_bind()
            server.server_activate()
            self.port = server.server_port
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            self._stack.callback(server.server_close)
            self._stack.callback(server.shutdown)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._stack.close()

    def spans(self) -> list[Span]:
        """Return the received spans."""
        with self._lock:
            return list(self._spans)

    def wait_for(
        self, ready: Callable[[list[Span]], bool], *, timeout_s: float = 60.0
    ) -> list[Span]:
        """Return the spans once they are as wanted.

        Raises:
            TimeoutError: They are not.
        """
        deadline = time.monotonic() + timeout_s
        while not ready(spans := self.spans()):
            if time.monotonic() > deadline:
                told = "\n".join(f"{one.service} {one.name} {one.trace}" for one in spans)
                raise TimeoutError(f"after {timeout_s} s there are {len(spans)} spans:\n{told}")
            time.sleep(0.05)
        return spans

    def _take(self, body: bytes) -> None:
        if self._forward is not None:
            headers = {"Content-Type": _KIND}
            onward = Request(f"{self._forward.rstrip('/')}/v1/traces", body, headers)  # noqa: S310
            # A collector that is not running yet misses these.
            with contextlib.suppress(OSError), urlopen(onward, timeout=5.0):  # noqa: S310
                pass
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        with self._lock:
            self.requests += 1
            if self.answer == 200:
                self._spans += _spans_of(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", _KIND)
                collector._take(body)
                if collector.answer is None:
                    collector._ended.wait()
                    self.close_connection = True
                    return
                content = ExportTraceServiceResponse().SerializeToString()
                self.send_response(collector.answer)
                self.send_header("Content-Type", _KIND)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        return Handler


def _spans_of(request: Any) -> list[Span]:
    return [
        Span(
            service=_attributes(resource.resource)["service.name"],
            name=span.name,
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            attributes=_attributes(span),
            events=tuple(event.name for event in span.events),
            links=tuple(link.span_id.hex() for link in span.links),
            error=span.status.message if span.status.code == 2 else "",
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _attributes(of: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}
