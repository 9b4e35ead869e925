"""A neighbour over MTCP that reads and writes its bundles with pyd3tn, µD3TN's codec in Python."""

from __future__ import annotations

import itertools
import queue
import socket
import threading
from typing import Any

import cbor2
from pyd3tn.bundle7 import (
    BlockProcFlag,
    BlockType,
    Bundle,
    BundleProcFlag,
    CanonicalBlock,
    CRCType,
    CreationTimestamp,
    PayloadBlock,
    PrimaryBlock,
)
from pyd3tn.helpers import CommunicationError
from pyd3tn.mtcp import MTCPConnection, MTCPSocket

from tests.testbed.namespace import Namespace

# Its own port, and that of the node under test.
PORT = 4_801
NODE_PORT = 4_811
_WAIT_S = 40.0
# With pyd3tn's default, two bundles of one millisecond would have the same id.
_sequence = itertools.count()


class Peer:
    """A peer that receives bundles at `PORT` of a namespace's loopback until it is closed."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._received: queue.Queue[bytes] = queue.Queue()
        self._listener = namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", PORT))
        self._listener.listen()
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._take, args=[connection], daemon=True).start()

    def _take(self, connection: socket.socket) -> None:
        source = MTCPSocket(connection)
        while True:
            try:
                self._received.put(source.recv_bundle())
            except (OSError, ValueError, CommunicationError):
                return

    def received(self) -> bytes:
        """Return the next bundle's bytes; raise `queue.Empty` if none comes."""
        return self._received.get(timeout=_WAIT_S)

    def send(self, *bundles: bytes) -> None:
        """Send bundles over one connection."""
        with self._namespace.entered():
            connection = MTCPConnection("127.0.0.1", NODE_PORT)
        with connection:
            for bundle in bundles:
                connection.send_bundle(bundle)

    def close(self) -> None:
        """Stop listening, and end the connections."""
        # Closing alone would not wake the accepting thread.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()


def parsed(raw: bytes) -> Any:
    """Return the bundle that pyd3tn parses, after a check of its CRCs by pyd3tn."""
    bundle = Bundle.parse(raw)
    for block in bundle:
        if block.crc_type != CRCType.NONE:
            assert block.calculate_crc() == block.crc_provided, block
    return bundle


def content(bundle: Any, kind: BlockType) -> Any:
    """Return the content of the block of this type."""
    (block,) = (each for each in bundle.blocks if each.block_type == kind)
    return cbor2.loads(block.data)


def bundle(
    destination: str,
    source: str,
    payload: bytes,
    *,
    blocks: tuple[CanonicalBlock, ...] = (),
    crc: CRCType = CRCType.CRC32,
    primary_crc: CRCType = CRCType.CRC32,
    flags: BundleProcFlag = BundleProcFlag.NONE,
    report_to: str | None = None,
    fragment: tuple[int, int] | None = None,
    created: CreationTimestamp | None = None,
    **primary: object,
) -> bytes:
    """Return a bundle encoded by pyd3tn; `fragment` is its offset and the whole's length, bytes."""
    offset, total = fragment or (None, None)
    if fragment:
        flags |= BundleProcFlag.IS_FRAGMENT
    return bytes(
        Bundle(
            PrimaryBlock(
                bundle_proc_flags=flags,
                crc_type=primary_crc,
                destination=destination,
                source=source,
                report_to=report_to,
                fragment_offset=offset,
                total_payload_length=total,
                creation_time=created or CreationTimestamp(None, next(_sequence)),
                **primary,
            ),
            PayloadBlock(payload, crc_type=crc, block_proc_flags=BlockProcFlag.NONE),
            list(blocks),
        )
    )
