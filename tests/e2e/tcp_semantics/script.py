"""The actions of the two ends of a connection, and their observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Send:
    """Write this many bytes; the other end decides how long that takes."""

    size: int

    def __str__(self) -> str:
        return f"send {self.size}"


@dataclass(frozen=True)
class SendUntilReset:
    """Write small pieces, one each 20 ms, until the connection is reset."""

    def __str__(self) -> str:
        return "send until reset"


@dataclass(frozen=True)
class Shut:
    """Shut the sending side down."""

    def __str__(self) -> str:
        return "shut"


@dataclass(frozen=True)
class Pause:
    """Do nothing for a time."""

    ms: int

    def __str__(self) -> str:
        return f"pause {self.ms} ms"


@dataclass(frozen=True)
class Meet:
    """Wait until every end of all scripts being played has come to its own `Meet`."""

    def __str__(self) -> str:
        return "meet"


@dataclass(frozen=True)
class Await:
    """Wait until this end has read this many bytes; None: until it has read an end of any kind."""

    size: int | None

    def __str__(self) -> str:
        return "await the end" if self.size is None else f"await {self.size}"


Op = Send | SendUntilReset | Shut | Pause | Meet | Await


@dataclass(frozen=True)
class Pace:
    """How an end reads: when it begins, the size of its pieces, and the pause after each."""

    after_ms: int = 0
    piece: int = 1 << 16
    pause_ms: int = 0

    def __str__(self) -> str:
        slow = f", {self.piece} B each {self.pause_ms} ms" if self.pause_ms else ""
        return f"from {self.after_ms} ms{slow}"


@dataclass(frozen=True)
class End:
    """One end: it writes by `ops` and reads beside that, at most `limit` bytes.

    It closes (or aborts, by RST) when it has done all `ops` and has read to its limit or to the
    end; with `leaves`, when it has done all `ops`. A write that fails ends the `ops`.
    """

    ops: tuple[Op, ...] = ()
    limit: int | None = None
    pace: Pace = Pace()
    leaves: bool = False
    ending: Literal["close", "abort"] = "close"

    def __str__(self) -> str:
        reads = "all" if self.limit is None else str(self.limit)
        steps = ", ".join(map(str, self.ops)) or "send nothing"
        leaves = " at once" if self.leaves else ""
        return f"{steps}; read {reads} {self.pace}; {self.ending}{leaves}"


@dataclass(frozen=True)
class Script:
    """One connection. `eager`: the client's first bytes come with its words to the proxy."""

    name: str
    client: End
    origin: End
    eager: bool = False

    def __str__(self) -> str:
        eager = " (eager)" if self.eager else ""
        return f"{self.name}{eager}\n  client: {self.client}\n  origin: {self.origin}"


# eof: in order; reset: by RST, even if a write reported it first; open: this end did not read
# that far; none: the origin never had the connection; hung: it did not finish in time.
ReadEnd = Literal["eof", "reset", "open", "none", "hung"]


@dataclass(frozen=True)
class Seen:
    """The observations of one end."""

    received: int
    end: ReadEnd
    # Whether all of its writes, the shutdown included, were accepted.
    wrote_all: bool
    # Describes received bytes that were not sent, or an error that TCP does not have.
    wrong: str | None = None

    def __str__(self) -> str:
        wrote = "wrote all" if self.wrote_all else "a write failed"
        return f"{self.received} B, {self.end}, {wrote}" + (f", {self.wrong}" if self.wrong else "")
