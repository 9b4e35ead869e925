"""Tokens of enrolments, as `underpass enroll` reads them.

`upe_` and, in base64url without padding: the version 1 (1 byte), the node's number (4 bytes), the
SHA-256 of a certificate that the service's TLS presents (32 bytes), and 32 random bytes. So the
node can verify the service before it sends the token.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
from pathlib import Path

_PREFIX = "upe_"
_VERSION = 1
RANDOM_BYTES = 32
LONGEST_TOKEN = 128


def token_of(node: int, fingerprint: bytes, random: bytes) -> str:
    """Return the token of a node, with the fingerprint and the random bytes that it is given."""
    content = bytes([_VERSION]) + node.to_bytes(4, "big") + fingerprint + random
    return _PREFIX + base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def fingerprint_of(certificate: Path) -> bytes:
    """Return the SHA-256 of the first certificate in a PEM file.

    Raises:
        OSError: It cannot be read.
        ValueError: There is no certificate in it.
    """
    text = certificate.read_text(encoding="ascii")
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    start = text.find(begin)
    stop = text.find(end, start)
    if start < 0 or stop < 0:
        raise ValueError(f"{certificate} holds no certificate")
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[start : stop + len(end)])).digest()
