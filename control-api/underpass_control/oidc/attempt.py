"""One browser's attempt to sign in by the provider, kept in a cookie of that browser alone.

All values sent to the provider, and returned by it, are derived from the cookie's secret. So only
the browser with the cookie can finish the attempt, and no process has to remember it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

_COOKIE = re.compile(r"([A-Za-z0-9_-]{43})\.([!#-+\--:<-~]{0,200})")
# A page of the console, with its subject and the part shown. It begins with a letter and is put
# after `#/`, so it cannot lead to another site.
_PAGE = re.compile(r"[a-z]{1,20}(/[A-Za-z0-9_%.-]{1,90})?(\?[A-Za-z0-9_%=&+.-]{0,80})?")


@dataclass(frozen=True)
class Attempt:
    """An attempt, identified by its cookie's secret."""

    secret: str
    # The page of the console to show afterwards.
    page: str

    @property
    def state(self) -> str:
        """The value that ties the provider's answer to this attempt (RFC 6749, § 10.12)."""
        return self._derived("state")

    @property
    def nonce(self) -> str:
        """The value that the ID token repeats, to prove that it is for this attempt."""
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        """The secret needed to exchange this attempt's code (RFC 7636)."""
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        """The verifier's SHA-256, by which the provider checks it."""
        return _base64(hashlib.sha256(self.verifier.encode()).digest())

    @property
    def cookie(self) -> str:
        """The content of the cookie."""
        return f"{self.secret}.{self.page}"

    def _derived(self, name: str) -> str:
        return _base64(hmac.digest(self.secret.encode(), f"underpass {name}".encode(), "sha256"))


def new_attempt(page: str) -> Attempt:
    """Begin an attempt; an invalid page leads to the console's first page."""
    return Attempt(secrets.token_urlsafe(32), _page(page))


def attempt_of(cookie: str) -> Attempt | None:
    """Return the attempt that a cookie is of; None if it is of none."""
    found = _COOKIE.fullmatch(cookie)
    return None if found is None else Attempt(found[1], _page(found[2]))


def _page(text: str) -> str:
    return text if _PAGE.fullmatch(text) else ""


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
