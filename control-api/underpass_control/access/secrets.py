"""Secrets that are shown once and stored as a hash: tokens, and the secrets of session cookies."""

from __future__ import annotations

import hashlib
import secrets

_RANDOM_BYTES = 32
# In characters; some room for secrets of later versions.
LONGEST_SECRET = 128


def new_secret(prefix: str) -> str:
    """Return a secret with 256 random bits."""
    return prefix + secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(text: str) -> bytes:
    """Return the hash stored of a secret: its SHA-256, which is enough for 256 random bits."""
    # A cookie may have bytes that are no UTF-8.
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()
