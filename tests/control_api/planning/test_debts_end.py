"""Whatever is predicted and whatever comes, in the end nobody owes anything, to the bit."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dama.prediction import Blockage
from tests.control_api.planning.beam import ONE_WAY_MS, Beam, Tunnel, jittering

# Blockages are predicted and come until then. After the last plan for them a plan for what remains
# follows within a minute and a half, and one for the bits that rounding has left of that.
_EVENTFUL_MS = 120_000
_END_MS = _EVENTFUL_MS + 300_000
_SILENCE_MS = 1_000


@dataclass(frozen=True)
class Passages:
    """When the first terminal is without line of sight, from and to."""

    spans_ms: tuple[tuple[int, int], ...]

    def blocked(self, sent_ms: int) -> bool:
        """Tell whether data that the hub sends at this time meets a blockage."""
        return any(begin <= sent_ms + ONE_WAY_MS < end for begin, end in self.spans_ms)


@dataclass(frozen=True)
class Said:
    """A prediction that is made for a while, and may be wrong."""

    from_ms: int
    until_ms: int
    blockage: Blockage


@dataclass
class StrayingBeam(Beam):
    """A hub that sends bundles: by the end of a step, some terminals are ahead of what is due.

    Those after them are as far behind, by up to `by_bits` each.
    """

    by_bits: int = 0
    noise: random.Random = field(default_factory=random.Random)
    _ahead: dict[str, int] = field(default_factory=dict)

    def _send(self, now_ms: int, *, noticed: bool) -> dict[str, int]:
        bits = super()._send(now_ms, noticed=noticed)
        moving = [name for name in bits if bits[name] > 2 * self.by_bits]
        ahead = dict.fromkeys(moving, 0)
        for one, other in zip(moving[::2], moving[1::2], strict=False):
            ahead[one] = self.noise.randint(-self.by_bits, self.by_bits)
            ahead[other] = -ahead[one]
        for name in moving:
            bits[name] += ahead[name] - self._ahead.get(name, 0)
        self._ahead |= ahead
        return bits


def spans(least_ms: int, most_ms: int) -> st.SearchStrategy[tuple[int, int]]:
    """Draw a begin and an end."""
    return st.tuples(
        st.integers(20_000, 90_000), st.integers(least_ms, most_ms).map(lambda ms: ms // 250 * 250)
    ).map(lambda drawn: (drawn[0], min(drawn[0] + drawn[1], _EVENTFUL_MS)))


@st.composite
def said(draw: st.DrawFn, truth: tuple[tuple[int, int], ...]) -> Said:
    """Draw a prediction, of a passage that comes or of one that does not, right or off by some."""
    begin_ms, end_ms = draw(st.sampled_from(truth) if truth else spans(1_000, 30_000))
    entry_ms = begin_ms + draw(st.integers(-8_000, 8_000))
    exit_ms = max(entry_ms + 1_000, end_ms + draw(st.integers(-8_000, 8_000)))
    from_ms = max(0, entry_ms - draw(st.integers(1, 60)) * 1_000)
    until_ms = draw(st.integers(from_ms, exit_ms))
    confidence = draw(st.sampled_from((0.6, 0.9, 1.0)))
    return Said(from_ms, until_ms, Blockage("tunnel", entry_ms, exit_ms, confidence, from_ms))


@settings(max_examples=12, deadline=None)
@given(st.data(), st.integers(2, 6))
def test_debts_end_to_the_bit_whatever_is_predicted(data: st.DataObject, sessions: int) -> None:
    truth = tuple(data.draw(st.lists(spans(1_000, 30_000), max_size=2)))
    made = data.draw(st.lists(said(truth), max_size=4))
    beam = Beam(
        sessions,
        Passages(truth),
        lambda now_ms: tuple(o.blockage for o in made if o.from_ms <= now_ms < o.until_ms),
        _SILENCE_MS,
    )
    beam.run(_END_MS)
    assert beam.ledger.balances() == {}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_debts_end_though_each_terminal_is_sent_whole_bundles(seed: int) -> None:
    tunnel = Tunnel(entry_ms=60_000, exit_ms=90_000, foreseen_ms=10_000)
    says = jittering(tunnel, 1_000, seed)
    # A bundle is 60 ms of line time.
    beam = StrayingBeam(4, tunnel, says, _SILENCE_MS, by_bits=120_000, noise=random.Random(seed))
    beam.run(500_000)
    assert beam.ledger.balances() == {}
