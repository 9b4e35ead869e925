"""An HTTP/2 connection over TLS (RFC 9113), over which a client fetches one object at a time."""

from __future__ import annotations

import socket
import ssl
import time
from typing import Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes

from tests.testbed.client.transfer import Transfer
from tests.testbed.content import Verifier

_READ_BYTES = 256 << 10
# So large that no window delays an answer: only the hop is measured.
_WINDOW_BYTES = 64 << 20


class Http2Connection:
    """One connection to an origin of the test bed, for the name in its ClientHello."""

    def __init__(self, plain: socket.socket, name: str) -> None:
        """Take a connection to the origin, and shake hands within its timeout."""
        self._name = name
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The origin's certificate is self-signed; its content is checked byte for byte instead.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        try:
            self._sock = context.wrap_socket(plain, server_hostname=name)
        except BaseException:
            plain.close()
            raise
        self._http = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._http.initiate_connection()
        self._http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES})
        self._http.increment_flow_control_window(_WINDOW_BYTES)
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def download(self, size: int, seed: int, deadline_s: float) -> Transfer:
        """Fetch `size` bytes of the seed's content and check them; times count from the request.

        A broken or late transfer is returned with the reason; the connection is then unusable.
        """
        transfer, began = Transfer(size), time.monotonic()
        try:
            self._fetch(transfer, Verifier(seed), began, deadline_s)
        except OSError as error:
            transfer.error = f"{type(error).__name__}: {error}"
        return transfer

    def _fetch(
        self, transfer: Transfer, verifier: Verifier, began: float, deadline_s: float
    ) -> None:
        stream = self._http.get_next_available_stream_id()
        request = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", self._name),
            (":path", f"/bytes/{transfer.size}?seed={verifier.seed}"),
        ]
        self._http.send_headers(stream, request, end_stream=True)
        self._flush()
        while transfer.last_byte_s is None:
            left = began + deadline_s - time.monotonic()
            if left <= 0:
                raise TimeoutError("the run's time is over")
            self._sock.settimeout(left)
            data = self._sock.recv(_READ_BYTES)
            if not data:
                raise ConnectionError(f"ended after {transfer.bytes} of {transfer.size} bytes")
            now = time.monotonic() - began
            for event in self._http.receive_data(data):
                self._take(event, transfer, verifier, now)
            self._flush()

    def _take(self, event: Event, transfer: Transfer, verifier: Verifier, now: float) -> None:
        if isinstance(event, ResponseReceived):
            transfer.first_byte_s = now
            if dict(event.headers)[b":status"] != b"200":
                raise ConnectionError(f"answer: {event.headers}")
        elif isinstance(event, DataReceived):
            verifier.feed(event.data)
            transfer.bytes += len(event.data)
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            if transfer.bytes != transfer.size:
                raise ConnectionError(f"ended after {transfer.bytes} of {transfer.size} bytes")
            transfer.last_byte_s = now
        elif isinstance(event, StreamReset | ConnectionTerminated):
            raise ConnectionError(f"the origin ends it: {event}")

    def _flush(self) -> None:
        self._sock.sendall(self._http.data_to_send())
