"""The observations that TCP allows the two ends of a script, whatever the delays.

The connection is explored as a machine of two applications, two kernels and what is on the way
between them. Its steps happen in any order: bytes, FIN and RST take any time, a RST overtakes
and so destroys bytes, and a write is accepted at any time until the RST has come. What remains
fixed is what TCP promises: order, the end behind the last byte unless there is a reason for a
reset, and causes before effects. The reasons for a reset are Linux's (RFC 9293, section 3.10):
an abort; a close with bytes unread; bytes that come to an end that has closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tests.e2e.tcp_semantics.script import (
    Await,
    End,
    Meet,
    Pause,
    ReadEnd,
    Script,
    Seen,
    Send,
    SendUntilReset,
    Shut,
)

_ENDLESS = 1 << 62
# For `SendUntilReset`; one piece or a thousand makes no difference here.
_PIECE = 1000
# Every buffer on the way takes at least this much from an end whose peer does not read.
_SURELY_BUFFERED = 4096
# A script with more states is no better a test than a smaller one.
_MOST_STATES = 30_000


class UnfitError(ValueError):
    """The script cannot be run; the text says why."""


@dataclass(frozen=True)
class _App:
    """An end's application and kernel."""

    step: int = 0
    # How many parts of the present step's bytes have been written.
    part: int = 0
    sent: int = 0
    # The bytes that a failed write may have sent.
    perhaps_sent: int = 0
    shut: bool = False
    write_failed: bool = False
    # Bytes, FIN and RST that have arrived; those sent by the other but absent here are on the way.
    came: int = 0
    fin_came: bool = False
    rst: int = 0  # 1 on the way to here, 2 here
    end: ReadEnd = "open"
    awaited: int = 0
    # running, closed (its kernel still sends and listens), dead, none
    life: str = "running"
    received: tuple[int, int] = (0, 0)


# Client and origin, and whether the origin has the connection.
_State = tuple[tuple[_App, _App], bool]
Key = tuple[ReadEnd, bool, ReadEnd, bool]
Range = tuple[int, int]


@dataclass
class Allowed:
    """The outcomes that TCP allows the two ends: kinds of end, with the least and most bytes."""

    outcomes: dict[Key, tuple[Range, Range]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Tell whether only one outcome is allowed."""
        ranges = [r for pair in self.outcomes.values() for r in pair]
        return len(self.outcomes) == 1 and all(least == most for least, most in ranges)

    def allows(self, client: Seen, origin: Seen) -> bool:
        """Tell whether the two may have observed this."""
        if client.wrong or origin.wrong:
            return False
        key: Key = (client.end, client.wrote_all, origin.end, origin.wrote_all)
        ranges = self.outcomes.get(key)
        return ranges is not None and all(
            least <= seen.received <= most
            for seen, (least, most) in zip((client, origin), ranges, strict=True)
        )

    def __str__(self) -> str:
        return " | ".join(
            f"client {a[0]}..{a[1]} B, {k[0]}{'' if k[1] else ', a write failed'}; "
            f"origin {b[0]}..{b[1]} B, {k[2]}{'' if k[3] else ', a write failed'}"
            for k, (a, b) in self.outcomes.items()
        )

    def add(self, key: Key, ranges: tuple[Range, Range]) -> None:
        """Add an outcome."""
        known = self.outcomes.get(key, ranges)
        a, b = (
            (min(old[0], new[0]), max(old[1], new[1]))
            for old, new in zip(known, ranges, strict=True)
        )
        self.outcomes[key] = (a, b)


def allowed(script: Script) -> Allowed:
    """Explore a script; raise `UnfitError` if its ends may wait for each other for ever.

    They may if they do with buffers that take almost nothing: then they can with others too.
    """
    ends = tuple(
        replace(end, ops=tuple(op for op in end.ops if not isinstance(op, Pause | Meet)))
        for end in (script.client, script.origin)
    )
    machine = _Machine((ends[0], ends[1]))
    machine.explore(tight=True)
    return machine.explore(tight=False)


class _Machine:
    def __init__(self, ends: tuple[End, End]) -> None:
        self._ends = ends
        self._boundaries = tuple(sorted(set(_boundaries(end))) for end in ends)

    def explore(self, *, tight: bool) -> Allowed:
        """Visit every state; `tight` lets a write end only when the other end has read it."""
        self._tight = tight
        result = Allowed()
        first: _State = ((_App(), _App()), False)
        seen, open_ = {first}, [first]
        while open_:
            state = open_.pop()
            if all(app.life != "running" for app in state[0]):
                result.add(*self._outcome(state[0]))
                continue
            after = list(self._after(state))
            if not after:
                raise UnfitError("its ends may wait for each other")
            for following in after:
                if following not in seen:
                    seen.add(following)
                    open_.append(following)
            if len(seen) > _MOST_STATES:
                raise UnfitError("it has too many states")
        return result

    def _outcome(self, apps: tuple[_App, _App]) -> tuple[Key, tuple[Range, Range]]:
        ranges = []
        for here in (0, 1):
            app, other, end = apps[here], apps[1 - here], self._ends[here]
            least, most = app.received
            limit = _ENDLESS if end.limit is None else end.limit
            if app.life == "none":
                least = most = 0
            elif app.end == "reset" or (app.end == "open" and end.leaves and most < limit):
                # None, a part or all of a write may be on the way.
                most = min(limit, max(most, other.perhaps_sent, other.sent))
            ranges.append((least, most))
        client, origin = apps
        none = origin.life == "none"
        key: Key = (
            client.end,
            not client.write_failed,
            "none" if none else origin.end,
            none or not origin.write_failed,
        )
        return key, (ranges[0], ranges[1])

    def _after(self, state: _State) -> Iterator[_State]:
        apps, connected = state
        if not connected and apps[1].life == "running":
            yield apps, True
        for here in (0, 1):
            app, other = apps[here], apps[1 - here]
            for new, new_other in self._steps(here, app, other, connected=connected):
                yield ((new, new_other) if here == 0 else (new_other, new)), connected

    def _steps(
        self, here: int, app: _App, other: _App, *, connected: bool
    ) -> Iterator[tuple[_App, _App]]:
        if app.rst == 1:
            life = app.life
            if life == "closed":
                life = "dead"
            elif here == 1 and not connected:
                life = "none"
            yield replace(app, rst=2, life=life), other
        if here == 1 and not connected:
            return
        yield from self._arrive(here, app, other)
        if app.life == "running":
            yield from self._read_end(here, app, other)
            yield from self._write(here, app, other)
            yield from self._leave(here, app, other)

    def _arrive(self, here: int, app: _App, other: _App) -> Iterator[tuple[_App, _App]]:
        """Let bytes or FIN arrive at this end."""
        if app.rst == 2 or app.life in ("dead", "none"):
            return
        endless = self._is_endless(other, 1 - here)
        if app.came < other.sent:
            if app.life == "closed":
                yield replace(app, life="dead"), replace(other, rst=max(1, other.rst))
            else:
                after = next(b for b in self._boundaries[1 - here] if b > app.came)
                yield replace(app, came=min(after, other.sent)), other
        elif endless and app.life == "closed":
            yield replace(app, life="dead"), replace(other, rst=max(1, other.rst))
        elif other.shut and not app.fin_came and app.life == "running":
            yield replace(app, fin_came=True), other

    def _is_endless(self, app: _App, which: int) -> bool:
        ops = self._ends[which].ops
        return (
            app.life == "running"
            and not app.write_failed
            and app.step < len(ops)
            and isinstance(ops[app.step], SendUntilReset)
        )

    def _limit(self, here: int) -> int:
        limit = self._ends[here].limit
        return _ENDLESS if limit is None else limit

    def _read(self, here: int, app: _App) -> int:
        return min(app.came, self._limit(here))

    def _read_end(self, here: int, app: _App, other: _App) -> Iterator[tuple[_App, _App]]:
        """Read the end: bytes that have arrived are read before it, and FIN is seen before RST."""
        if app.end != "open" or app.came >= self._limit(here):
            return
        if app.fin_came or app.rst == 2:
            in_order = app.fin_came and not app.write_failed
            yield replace(app, end="eof" if in_order else "reset"), other

    def _write(self, here: int, app: _App, other: _App) -> Iterator[tuple[_App, _App]]:
        ops = self._ends[here].ops
        if app.write_failed or app.step == len(ops):
            return
        op = ops[app.step]
        if isinstance(op, Await):
            ended = app.end != "open"
            if ended or (op.size is not None and self._read(here, app) >= op.size):
                awaited = max(app.awaited, min(op.size or 0, self._read(here, app)))
                yield replace(app, step=app.step + 1, awaited=awaited), other
            return
        if app.rst == 2:
            perhaps = app.sent
            if isinstance(op, Send):
                perhaps = app.sent + op.size - (1 if app.part else 0)
            elif isinstance(op, SendUntilReset):
                perhaps = _ENDLESS
            yield replace(app, write_failed=True, perhaps_sent=perhaps), other
            return
        if self._held_up(here, app, other):
            return
        if isinstance(op, Shut):
            yield replace(app, step=app.step + 1, shut=True), other
        elif isinstance(op, SendUntilReset):
            if app.part == 0:
                sent = app.sent + _PIECE
                yield replace(app, part=1, sent=sent, perhaps_sent=_ENDLESS), other
        elif isinstance(op, Send):
            if app.part == 0 and op.size > 1:
                yield replace(app, part=1, sent=app.sent + 1), other
            else:
                sent = app.sent + op.size - app.part
                yield replace(app, step=app.step + 1, part=0, sent=sent), other

    def _held_up(self, here: int, app: _App, other: _App) -> bool:
        """Tell whether a write has not returned because the other end has not read its bytes."""
        if not self._tight or other.life != "running":
            return self._tight and other.life == "closed" and app.sent > other.came
        return app.sent - self._read(1 - here, other) > _SURELY_BUFFERED

    def _leave(self, here: int, app: _App, other: _App) -> Iterator[tuple[_App, _App]]:
        end = self._ends[here]
        if not app.write_failed and app.step < len(end.ops):
            return
        if not app.write_failed and app.rst != 2 and self._held_up(here, app, other):
            return
        read = self._read(here, app)
        done_reading = app.end != "open" or app.came >= self._limit(here)
        if not done_reading and not end.leaves:
            return
        if app.end != "open":
            unread, received = {False}, (read, read)
        elif done_reading and not end.leaves:
            unread, received = {app.came > read}, (read, read)
        else:
            # It leaves while reading: bytes that have arrived may be read or not.
            received = (app.awaited, read)
            unread = {app.came > app.awaited, app.came > read}
        for left in sorted(unread):
            gone = replace(app, received=received)
            reset = replace(other, rst=max(1, other.rst))
            if app.rst == 2:
                yield replace(gone, life="dead"), other
            elif end.ending == "abort" or left:
                yield replace(gone, life="dead"), reset
            else:
                yield replace(gone, life="closed", shut=True), other


def _boundaries(end: End) -> Iterator[int]:
    """Yield the offsets up to which bytes may have come: after each write and its first byte."""
    at = 0
    for op in end.ops:
        if isinstance(op, Send):
            yield at + 1
            at += op.size
            yield at
        elif isinstance(op, SendUntilReset):
            yield at + _PIECE
