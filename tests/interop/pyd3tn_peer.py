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

# Where it takes bundles, and where it sends them: a port of the node under test.
PORT = 4_801
NODE_PORT = 4_811
_WAIT_S = 40.0
# pyd3tn's own default gives two bundles of one millisecond the same name.
_sequence = itertools.count()


class Peer:
    """One that takes bundles at `PORT` of a namespace's loopback, as long as it is not closed."""

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
        """Take no more, and end the connections."""
        # Closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()


def parsed(raw: bytes) -> Any:
    """Return pyd3tn's reading of a bundle, whose CRCs it has computed to be right."""
    bundle = Bundle.parse(raw)
    for block in bundle:
        if block.crc_type != CRCType.NONE:
            assert block.calculate_crc() == block.crc_provided, block
    return bundle


def content(bundle: Any, kind: BlockType) -> Any:
    """Return what the block of this type holds."""
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
    """Return a bundle as pyd3tn writes it; `fragment` is its offset and the bytes of the whole."""
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
