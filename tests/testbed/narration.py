"""Events on the beam as lines of text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

# What the symbols in lines on plans mean.
SYMBOLS = """\
  T_t  how long it will be without line of sight
  D_u  what it cannot use then: its fair rate times T_t
  T_r  how long the others lend before that
  D_b  the rate that each of them lends meanwhile
  D_r  the amount that each of them is repaid within T_t"""

_POSITION_EVERY_S = 5.0
_RATES_EVERY_S = 5.0
# For a reader, a prediction that has moved by less is the same.
_MOVED_MS = 3_000
# So is a plan whose D_u has changed by less than this part.
_PLANNED_PART = 0.1
# Less certain predictions are not planned for.
_LEAST_CONFIDENCE = 0.5

# The segments of a terminal's line in a plan, with all amounts, as the service shows them.
Segments = Sequence[Mapping[str, Any]]


@dataclass
class Narrator:
    """Turns the control service's events into lines, without repetitions."""

    # By node number.
    names: Mapping[int, str]
    _position_s: dict[int, float] = field(default_factory=dict)
    # The last narrated entry and exit, by terminal and obstruction.
    _expected: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    # Time and bytes sent on the forward link at the last line of rates, by terminal.
    _sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    _latest: dict[int, dict[str, Any]] = field(default_factory=dict)
    # The last narrated D_u, by terminal and link; the narrated plans, by link and version.
    _planned: dict[tuple[int, str], int] = field(default_factory=dict)
    _told: set[tuple[str, int]] = field(default_factory=set)

    def positions(self, data: Mapping[str, Any], now_s: float) -> Iterator[str]:
        """Narrate where vehicles are, every few seconds."""
        for one in data["positions"]:
            terminal = one["terminal"]
            if now_s - self._position_s.get(terminal, 0.0) < _POSITION_EVERY_S:
                continue
            self._position_s[terminal] = now_s
            place = f"{abs(one['latitude']):.4f}° {'NS'[one['latitude'] < 0]}"
            place += f" {abs(one['longitude']):.4f}° {'EW'[one['longitude'] < 0]}"
            speed = f", {3.6 * one['speed_mps']:.0f} km/h" if "speed_mps" in one else ""
            yield _line(now_s, "position", f"{self._name(terminal)} at {place}{speed}")

    def blockages(self, data: Mapping[str, Any], now_s: float) -> Iterator[str]:
        """Narrate new predictions, and blockages that nodes have observed."""
        for one in data["blockages"]:
            entry_ms = ms(one["entry"])
            exit_ms = ms(one["exit"]) if "exit" in one else None
            name = self._name(one["terminal"])
            if one["state"] == "observed":
                what = f"{name} {one['link']}: blocked since {_clock(entry_ms)}, by {one['source']}"
                if exit_ms is not None:
                    what = f"{name} {one['link']}: free again after {_s(exit_ms - entry_ms)}"
                yield _line(now_s, "blockage", what)
                continue
            yield from self._predicted(one, name, entry_ms, exit_ms or entry_ms, now_s)

    def _predicted(
        self, one: Mapping[str, Any], name: str, entry_ms: int, exit_ms: int, now_s: float
    ) -> Iterator[str]:
        key = one["terminal"], str(one.get("obstruction"))
        if one["state"] != "predicted":
            # Passed or withdrawn: the next prediction is new.
            known = self._expected.pop(key, None)
            if known and one["state"] == "withdrawn":
                text = f"{name}: not blocked at {_clock(known[0])} after all"
                yield _line(now_s, "prediction", text)
            return
        ahead_ms = entry_ms - round(1000 * now_s)
        known = self._expected.get(key)
        if known and abs(known[0] - entry_ms) < _MOVED_MS and abs(known[1] - exit_ms) < _MOVED_MS:
            return
        if ahead_ms > 0 and one["confidence"] >= _LEAST_CONFIDENCE:
            self._expected[key] = entry_ms, exit_ms
            yield _line(
                now_s,
                "prediction",
                f"{name}: blocked in {_s(ahead_ms)}, at {_clock(entry_ms)}, for "
                f"{_s(exit_ms - entry_ms)}, {100 * one['confidence']:.0f} % sure",
            )

    def plan(
        self, link: str, version: int, lines: Mapping[int, Segments], now_s: float
    ) -> Iterator[str]:
        """Narrate what a plan lends and repays, if that differs from the last narration."""
        for terminal, segments in lines.items():
            others = [one for node, one in lines.items() if node != terminal]
            inside = [one for one in segments if one["state"] == "blocked"]
            before = [one for one in segments if one["borrowed_bits"]]
            lent = [_sum(one, "lent_bits") for one in others]
            unused = _sum(inside, "fair_bits")
            # The lending before must make up for most of the loss inside.
            if not inside or not before or sum(lent) < unused / 2:
                continue
            known = self._planned.get((terminal, link), 0)
            if abs(unused - known) < known * _PLANNED_PART:
                continue
            self._planned[terminal, link] = unused
            self._told.add((link, version))
            lenders, ahead_ms = sum(bits > 0 for bits in lent), _duration_ms(before)
            rate = sum(lent) / lenders / ahead_ms / 1000
            repaid = sum(_sum(one, "repaid_bits") for one in others) / lenders
            yield _line(
                now_s,
                "plan",
                f"{link} {version}: {self._name(terminal)} for T_t = {_s(_duration_ms(inside))} "
                f"in the dark cannot use D_u = {_mbit(unused)}; each of {lenders} lends D_b = "
                f"{rate:.2f} Mbit/s for T_r = {_s(ahead_ms)}, and is repaid D_r = {_mbit(repaid)}",
            )

    def acknowledgements(self, data: Mapping[str, Any], now_s: float) -> Iterator[str]:
        """Narrate which nodes follow a narrated plan."""
        if (data["link"], data["plan"]) not in self._told:
            return
        who = ", ".join(
            f"{self._name(one['node'])} after {one['after_ms']} ms"
            for one in data["acknowledgements"]
        )
        yield _line(now_s, "taken over", f"{data['link']} {data['plan']}: {who}")

    def links(self, data: Mapping[str, Any], now_s: float) -> Iterator[str]:
        """Narrate the rates of all forward links in one line."""
        for one in data["links"]:
            if one["link"] == "forward":
                self._latest[one["terminal"]] = one
        times = [time_ms for time_ms, _ in self._sent.values()]
        if times and now_s - max(times) / 1000 < _RATES_EVERY_S:
            return
        rates = []
        for terminal, one in sorted(self._latest.items()):
            now_ms = ms(one["time"])
            time_ms, sent = self._sent.get(terminal, (now_ms, one["sent_bytes"]))
            passed_ms = now_ms - time_ms
            if passed_ms > 0:
                # A restarted node counts from zero again.
                since = one["sent_bytes"] - sent if one["sent_bytes"] >= sent else one["sent_bytes"]
                rate = since * 8 / passed_ms / 1000
                state = "" if one["state"] == "up" else f" ({one['state']})"
                rates.append(f"{self._name(terminal)} {rate:5.2f}{state}")
            self._sent[terminal] = now_ms, one["sent_bytes"]
        if rates:
            yield _line(now_s, "rates", "  ".join(rates) + "  Mbit/s to the terminals")

    def ledger(self, data: Mapping[str, Any], balances: Mapping[int, int], now_s: float) -> str:
        """Narrate what was lent or repaid, and the balances, bits: below 0 a terminal owes."""
        debts = "  ".join(
            f"{self._name(terminal)} {'owes' if bits < 0 else 'is owed'} {abs(bits) / 1e6:.1f}"
            for terminal, bits in sorted(balances.items())
        )
        text = f"{data['link']}: {data['entry_kind']} {_mbit(data['moved_bits'])} from "
        text += f"{_clock(ms(data['start']))} on; "
        return _line(now_s, "ledger", text + (f"{debts} Mbit" if debts else "nobody owes anything"))

    def _name(self, node: int) -> str:
        return self.names.get(node, str(node))


def ms(moment: str) -> int:
    """Return an RFC 3339 time in ms since the Unix epoch."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000)


def _line(now_s: float, kind: str, text: str) -> str:
    return f"{datetime.fromtimestamp(now_s, UTC):%H:%M:%S}  {kind:<10}  {text}"


def _clock(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%H:%M:%S}"


def _s(duration_ms: float) -> str:
    return f"{duration_ms / 1000:.1f} s"


def _mbit(bits: float) -> str:
    return f"{bits / 1e6:.1f} Mbit"


def _sum(segments: Segments, name: str) -> int:
    return sum(one[name] for one in segments)


def _duration_ms(segments: Segments) -> int:
    return sum(ms(one["end"]) - ms(one["start"]) for one in segments)
