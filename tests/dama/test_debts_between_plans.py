"""Debts over many plans: any terminal may be blocked, as planned or not, and leave the beam."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from dama.ledger import Ledger, Rule, Usage, settle
from dama.planner import Blockage, CapacityStep, Link, Plan, Request, Terminal, plan
from dama.planner.splitting import equal_at

_BEAM_BPS = 8_000_000
_PERIOD_MS = 10_000
# A plan is followed for three periods; by then all is settled that can be.
_PLAN_MS, _SETTLE_MS = 30_000, 25_000
_HORIZON_MS = 90_000


@dataclass
class Fleet:
    """The terminals of a beam, what they owe, and when each is really blocked."""

    terminals: dict[str, Terminal]
    lost: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    now_ms: int = 0

    def plan(self, expected: list[Blockage], *, settle_ms: int | None) -> Plan:
        """Plan with what is owed now."""
        terminals = tuple(
            Terminal(
                one.id,
                weight=one.weight,
                minimum_bps=one.minimum_bps,
                owed_bits=self.ledger.balance(one.id),
            )
            for one in self.terminals.values()
        )
        return plan(
            Request(
                beam="beam",
                link=Link.FORWARD,
                now_ms=self.now_ms,
                end_ms=self.now_ms + _HORIZON_MS,
                capacity=(CapacityStep(0, _BEAM_BPS),),
                terminals=terminals,
                blockages=tuple(one for one in expected if one.terminal in self.terminals),
                settle_ms=None if settle_ms is None else self.now_ms + settle_ms,
            )
        )

    def follow(self, made: Plan) -> None:
        """Send by a plan, share what blocked terminals leave of it, and settle."""
        for begin_ms in range(self.now_ms, self.now_ms + _PLAN_MS, _PERIOD_MS):
            end_ms = begin_ms + _PERIOD_MS
            amounts = made.amounts(begin_ms, end_ms)
            blocked = {
                name: sum(
                    max(0, min(exit_ms, end_ms) - max(entry_ms, begin_ms))
                    for entry_ms, exit_ms in self.lost.get(name, ())
                )
                for name in amounts
            }
            sent = {
                name: bits * (_PERIOD_MS - min(blocked[name], _PERIOD_MS)) // _PERIOD_MS
                for name, (bits, _) in amounts.items()
            }
            heard = [name for name in amounts if not blocked[name]]
            idle = sum(fair for _, fair in amounts.values()) - sum(sent.values())
            for name, more in zip(heard, equal_at(max(0, idle), len(heard) or 1), strict=False):
                sent[name] += more
            usages = [
                Usage(name, fair, bits, sent[name], bool(blocked[name]))
                for name, (bits, fair) in amounts.items()
            ]
            settle(self.ledger, begin_ms, end_ms, usages)
            assert sum(self.ledger.balances().values()) == 0
        self.now_ms += _PLAN_MS

    def leave(self, name: str) -> None:
        """Let a terminal leave, whatever it owes or is owed."""
        before = self.ledger.balances()
        self.terminals.pop(name)
        self.ledger.apply(self.ledger.forgive(name, Rule.LEFT, self.now_ms))
        after = self.ledger.balances()
        assert name not in after
        assert sum(after.values()) == 0
        # Others bear it: none of them owes more, or is owed more, than before.
        for other, bits in after.items():
            assert 0 < bits / before[other] <= 1

    def rest(self) -> None:
        """Let plans follow without any blockage until the debts have ended."""
        self.lost.clear()
        for _ in range(6):
            self.follow(self.plan([], settle_ms=_SETTLE_MS))


@st.composite
def blockages(draw: st.DrawFn, names: list[str], now_ms: int) -> list[Blockage]:
    """Draw blockages that a plan is made with; those of different terminals may overlap."""
    return [
        Blockage(
            draw(st.sampled_from(names)),
            entry_ms,
            entry_ms + 1_000 * draw(st.integers(1, 40)),
            draw(st.sampled_from((1.0, 0.75))),
        )
        for entry_ms in draw(st.lists(st.integers(now_ms, now_ms + 50_000), max_size=3))
    ]


@settings(max_examples=20, deadline=None)
@given(st.data(), st.integers(2, 5))
def test_all_debts_end_whoever_is_blocked_and_whatever_was_predicted(
    data: st.DataObject, count: int
) -> None:
    names = [f"t{number}" for number in range(count)]
    fleet = Fleet(
        {
            name: Terminal(
                name,
                weight=data.draw(st.sampled_from((Fraction(1), Fraction(3, 2)))),
                minimum_bps=data.draw(st.sampled_from((0, 200_000))),
            )
            for name in names
        }
    )
    for _ in range(data.draw(st.integers(1, 4))):
        expected = data.draw(blockages(names, fleet.now_ms))
        # Each comes as predicted, or at another time, or not at all.
        for one in expected:
            late_ms = data.draw(st.sampled_from((0, 0, 5_000, -5_000, None)))
            if late_ms is not None:
                of = fleet.lost.setdefault(one.terminal, [])
                of.append((one.entry_ms + late_ms, one.exit_ms + late_ms))
        fleet.follow(fleet.plan(expected, settle_ms=None))
        if len(fleet.terminals) > 2 and data.draw(st.booleans()):
            fleet.leave(data.draw(st.sampled_from(sorted(fleet.terminals))))
    fleet.rest()
    assert fleet.ledger.balances() == {}


def test_a_blockage_that_is_withdrawn_is_repaid_by_all_alike() -> None:
    fleet = Fleet({name: Terminal(name) for name in "ABCD"})
    fleet.follow(fleet.plan([Blockage("A", 30_000, 60_000)], settle_ms=None))
    assert fleet.ledger.balances() == {"A": -60_000_000, **dict.fromkeys("BCD", 20_000_000)}
    sent = dict.fromkeys("ABCD", 0)
    for _ in range(2):
        made = fleet.plan([], settle_ms=_SETTLE_MS)
        for name, (bits, fair) in made.amounts(fleet.now_ms, fleet.now_ms + _PLAN_MS).items():
            sent[name] += bits - fair
        fleet.follow(made)
    assert fleet.ledger.balances() == {}
    assert sent == {"A": -60_000_000, **dict.fromkeys("BCD", 20_000_000)}
