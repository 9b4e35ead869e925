"""The paper's experiment in virtual time: a fluid beam whose sessions follow the plan.

8 Mbit/s on the forward link, 500 ms of RTT, N terminals with one greedy download each for 300 s;
A is in a road tunnel from 180 to 240 s, which is known from 60 s on. Control plans anew as reports
come in. The hub sends by plan, shares the remaining capacity among the terminals with a link, and
keeps the data for a terminal without one.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dama.formulas import jain_index
from dama.ledger import Entry, Ledger, Usage, settle
from dama.planner import Blockage, CapacityStep, Line, Link, Request, Terminal, plan
from dama.planner.splitting import equal_at

BEAM_BPS = 8_000_000
ONE_WAY_MS = 250
END_MS = 300_000
# The payload of a packet of 1500 bytes with TCP/IP headers and timestamps.
HEADERS_LEAVE = Fraction(1448, 1500)
_STEP_MS = 250
_REPLAN_MS = 5_000
_REPORT_MS = 1_000
# The rate at which the hub sends to a terminal that it hears in a planned blockage.
_GUARANTEED_BPS = 500_000


@dataclass(frozen=True)
class Drive:
    """When A is in the road tunnel, and what control knows of that at each time.

    Attributes:
        entry_ms: at the antenna.
        exit_ms: the same.
        foreseen: gives, for the time of planning, the blockages that control then predicts.
    """

    entry_ms: int
    exit_ms: int
    foreseen: Callable[[int], tuple[Blockage, ...]]

    def blocked(self, sent_ms: int) -> bool:
        """Tell whether data that the hub sends to A at this time meets the blockage."""
        return self.entry_ms <= sent_ms + ONE_WAY_MS < self.exit_ms


def paper_drive(*, lend: bool = True) -> Drive:
    """Return the paper's drive: recognised at 60 s, in the tunnel from 180 to 240 s."""
    tunnel = (Blockage("A", 180_000, 240_000),)
    return Drive(180_000, 240_000, lambda now_ms: tunnel if lend and now_ms >= 60_000 else ())


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        sent_bits: IP bits to each terminal until the end.
        curves: by terminal, the bits of each second.
        ledger: at the end.
        entries: all entries of the ledger.
    """

    sent_bits: dict[str, int]
    curves: dict[str, list[int]]
    ledger: Ledger
    entries: list[Entry]

    @property
    def payload_mbit(self) -> dict[str, float]:
        """The payload without TCP/IP headers, in Mbit."""
        return {name: float(bits * HEADERS_LEAVE / 10**6) for name, bits in self.sent_bits.items()}

    @property
    def jain(self) -> Fraction:
        """Jain's index of the bits sent."""
        return jain_index(list(self.sent_bits.values()))


def run(sessions: int, drive: Drive, *, end_ms: int = END_MS) -> Outcome:
    """Let this many sessions share the beam until the end."""
    names = string.ascii_uppercase[:sessions]
    ledger = Ledger()
    entries: list[Entry] = []
    curves: dict[str, list[int]] = {name: [] for name in names}
    lines: dict[str, Line] = {}
    for second in range(0, end_ms, _REPORT_MS):
        if second % _REPLAN_MS == 0:
            lines = _plan(names, ledger, drive, second, end_ms)
        sent = dict.fromkeys(names, 0)
        for now_ms in range(second, second + _REPORT_MS, _STEP_MS):
            for name, bits in _step(lines, drive, now_ms).items():
                sent[name] += bits
        usages = []
        for name in names:
            planned, fair = lines[name].amounts(second, second + _REPORT_MS)
            times = range(second, second + _REPORT_MS, _STEP_MS)
            blocked = name == "A" and any(map(drive.blocked, times))
            usages.append(Usage(name, fair, planned, sent[name], blocked))
            curves[name].append(sent[name])
        entries += settle(ledger, second, second + _REPORT_MS, usages)
    totals = {name: sum(curve) for name, curve in curves.items()}
    return Outcome(totals, curves, ledger, entries)


def _plan(names: str, ledger: Ledger, drive: Drive, now_ms: int, end_ms: int) -> dict[str, Line]:
    terminals = tuple(
        Terminal(name, minimum_bps=_GUARANTEED_BPS, owed_bits=ledger.balance(name))
        for name in names
    )
    made = plan(
        Request(
            beam="beam",
            link=Link.FORWARD,
            now_ms=now_ms,
            end_ms=end_ms,
            capacity=(CapacityStep(0, BEAM_BPS),),
            terminals=terminals,
            blockages=drive.foreseen(now_ms),
            one_way_delay_ms=ONE_WAY_MS,
        )
    )
    return {line.terminal: line for line in made.lines()}


def _step(lines: dict[str, Line], drive: Drive, now_ms: int) -> dict[str, int]:
    """Return what the hub sends to each terminal in a step."""
    bits = {name: line.amounts(now_ms, now_ms + _STEP_MS)[0] for name, line in lines.items()}
    heard = [name for name in lines if name != "A" or not drive.blocked(now_ms)]
    bits = {name: bits[name] if name in heard else 0 for name in bits}
    whole = BEAM_BPS * _STEP_MS // 1000
    # Heard beats planned: the hub sends to A, at the others' expense.
    if "A" in heard and not bits["A"]:
        guaranteed = _GUARANTEED_BPS * _STEP_MS // 1000
        others = [name for name in heard if name != "A"]
        cut = equal_at(guaranteed, len(others))
        for name, less in zip(others, cut, strict=True):
            bits[name] -= less
        bits["A"] = guaranteed
    left = whole - sum(bits.values())
    for name, more in zip(heard, equal_at(left, len(heard)), strict=True):
        bits[name] += more
    return bits
