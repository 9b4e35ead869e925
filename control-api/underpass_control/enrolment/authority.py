"""The authority of the nodes' certificates: the folder that `underpass pki` keeps.

That program signs. So there is one record of certificates and one lock for all that work on the
folder, and its key is never in this process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from underpass_control.enrolment.tokens import fingerprint_of

_LOG = structlog.get_logger()
_WITHIN_S = 10.0
# The most requests that may wait; a further one has to come again later.
_MOST_WAITING = 64
# Another process may be working on the folder.
_TRIES = 5
_AGAIN_S = 0.2


class AuthorityError(Exception):
    """The authority cannot work, because of a fault of this machine."""


class RefusedRequestError(Exception):
    """The request is at fault; the text says why."""


@dataclass(frozen=True)
class Signed:
    """The certificates and the list that a node gets, each as PEM.

    Attributes:
        serial: the certificate's serial number, hexadecimal.
        not_after_ms: its end, ms since the Unix epoch.
        is_new: whether it has just been issued; otherwise the key had it already.
    """

    node: int
    serial: str
    not_after_ms: int
    is_new: bool
    certificate: str
    authority: str
    revocations: str


class Authority:
    """Signs requests, one after the other."""

    def __init__(
        self, folder: Path, program: str, *, days: int, certificate: Path | None = None
    ) -> None:
        """Use a folder.

        Args:
            folder: that of `underpass pki init`.
            program: the program `underpass`.
            days: the validity of signed certificates.
            certificate: the one whose fingerprint tokens have; None for the authority's own.
        """
        self._folder = folder
        self._program = program
        self._days = days
        self._certificate = certificate or folder / "ca.crt"
        self._waiting = 0
        self._turn = asyncio.Lock()

    def fingerprint(self) -> bytes:
        """Return the SHA-256 of the certificate by which nodes know the service.

        Raises:
            AuthorityError: It cannot be read.
        """
        try:
            return fingerprint_of(self._certificate)
        except (OSError, ValueError) as error:
            raise AuthorityError(str(error)) from error

    async def key_of(self, node: int, request: str) -> str:
        """Return the SHA-256 of a request's key, hexadecimal, if the request is the node's.

        Raises:
            RefusedRequestError: It is malformed, or another node's.
            AuthorityError: The authority cannot work.
        """
        found = await self._run(["sign", "--node", str(node), "--check"], request)
        return str(found["key_sha256"])

    async def sign(self, node: int, request: str) -> Signed:
        """Sign the request of a node that is enrolled.

        Raises:
            RefusedRequestError: It is malformed, another node's, or its key is revoked.
            AuthorityError: The authority cannot work.
        """
        return _signed(await self._run([*self._signing, "--node", str(node)], request))

    async def renew(self, request: str, node: int | None = None) -> Signed:
        """Sign the request of a node for the key of its certificate in force.

        Args:
            request: the request, PEM.
            node: the only node whose request it may be.

        Raises:
            RefusedRequestError: Its key has no certificate in force, or it is another node's.
            AuthorityError: The authority cannot work.
        """
        of_node = [] if node is None else ["--node", str(node)]
        return _signed(await self._run([*self._signing, "--renewal", *of_node], request))

    async def revoke(self, node: int) -> list[str]:
        """Revoke all certificates of a node; return their serial numbers.

        Raises:
            RefusedRequestError: There is none to revoke.
            AuthorityError: The authority cannot work.
        """
        found = await self._run(["revoke", "--node", str(node), "--json"], "")
        return [str(serial) for serial in found["revoked"]]

    async def revocations(self) -> tuple[str, str]:
        """Return the revocation list, PEM, and a tag that changes with it.

        Raises:
            AuthorityError: It cannot be read.
        """
        try:
            text = await asyncio.to_thread((self._folder / "ca.crl").read_text, "ascii")
        except (OSError, ValueError) as error:
            # Callers must not see paths of this machine.
            _LOG.error("the revocation list cannot be read", why=str(error))
            detail = "the revocation list cannot be read now; the service's log says more"
            raise AuthorityError(detail) from error
        return text, hashlib.sha256(text.encode()).hexdigest()

    @property
    def _signing(self) -> list[str]:
        return ["sign", "--days", str(self._days)]

    async def _run(self, arguments: Sequence[str], text: str) -> dict[str, Any]:
        if self._waiting >= _MOST_WAITING:
            raise AuthorityError("too many requests wait for the authority")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._answer(arguments, text)
        finally:
            self._waiting -= 1

    async def _answer(self, arguments: Sequence[str], text: str) -> dict[str, Any]:
        why = ""
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_AGAIN_S)
            code, out, why = await self._program_with(arguments, text)
            if code == 0:
                answer: dict[str, Any] = json.loads(out)
                if "refused" in answer:
                    raise RefusedRequestError(str(answer["refused"]))
                return answer
            if "another process" not in why:
                break
        _LOG.error("the authority fails", why=why.strip())
        raise AuthorityError("the authority cannot sign now; the service's log says more")

    async def _program_with(self, arguments: Sequence[str], text: str) -> tuple[int, bytes, str]:
        command = [self._program, "pki", arguments[0], "--dir", str(self._folder), *arguments[1:]]
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            return 1, b"", f"{self._program}: {error}"
        try:
            async with asyncio.timeout(_WITHIN_S):
                out, err = await process.communicate(text.encode())
        except TimeoutError:
            return 1, b"", f"no answer within {_WITHIN_S:.0f} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out, err.decode(errors="replace")


def _signed(answer: dict[str, Any]) -> Signed:
    return Signed(
        node=answer["node"],
        serial=answer["serial"],
        not_after_ms=answer["not_after_ms"],
        is_new=answer["is_new"],
        certificate=answer["certificate"],
        authority=answer["authority"],
        revocations=answer["revocations"],
    )
