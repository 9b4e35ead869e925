"""What may go wrong."""

from __future__ import annotations


class ConnectionLostError(ConnectionError):
    """The connection to the node has ended; what was not acknowledged comes again on the next."""


class RefusedError(RuntimeError):
    """The node refuses what was asked; `code` says why, as docs/applications.md lists it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NoRoomError(RefusedError):
    """The node has no room for the bundle at present: to be tried again later."""


def refusal(code: str, message: str) -> RefusedError:
    """Return the error of a code."""
    return (NoRoomError if code == "no_room" else RefusedError)(code, message)
