"""The effect of lending before road tunnels on a vehicle and its beam's others, in virtual time.

One vehicle drives, three terminals stand in the open; all are greedy. The control service's own
predictions, decisions when to plan, planner and ledger say who is sent what on the forward link;
the hub and the link are those of the paper's experiment. The same drive is planned by its
predictions, by a plan that knows all entries and exits 240 s ahead, and without lending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from underpass_control.planning.beam_planner import Reason
from underpass_control.prediction import Predictions

from dama.planner import Plan
from dama.prediction import Blockage, ObstructionMap
from dama.prediction.predictor import HORIZON_S
from tests.control_api.planning.beam import ONE_WAY_MS, PERIOD_MS, Beam, in_force
from tests.drives.drive import Drive

_SESSIONS = 4
_VEHICLE = 1
# After the drive the vehicle continues in the open, while debts are repaid.
_AFTER_MS = 240_000
# From a fix, and from what the hub notices, until control has it.
_REPORTED_MS = 500
# An unplanned blockage shows by a silence of a round trip and half a second.
_SILENCE_MS = 2 * ONE_WAY_MS + 500

Says = Callable[[int], tuple[Blockage, ...]]


class Knows(StrEnum):
    """The knowledge with which the beam is planned."""

    PREDICTIONS = "predictions"
    TIMES = "times"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Lent:
    """What came of a drive.

    Attributes:
        vehicle_bits: what reached the vehicle.
        others_bits: what reached the others, together.
        debt_bits: what is owed at the end, by all together.
        plans: how many were made.
    """

    vehicle_bits: int
    others_bits: int
    debt_bits: int
    plans: int


@dataclass(frozen=True)
class Passages:
    """When the vehicle is without line of sight, from and to, in ms since the drive began."""

    spans_ms: tuple[tuple[int, int], ...]

    def blocked(self, sent_ms: int) -> bool:
        """Tell whether data that the hub sends now meet a blockage."""
        return any(begin <= sent_ms + ONE_WAY_MS < end for begin, end in self.spans_ms)

    def known(self, now_ms: int) -> tuple[Blockage, ...]:
        """Return the blockages that a plan of known times uses."""
        return tuple(
            Blockage(f"passage {number}", begin, end, 1.0, now_ms)
            for number, (begin, end) in enumerate(self.spans_ms)
            if begin - 1000 * HORIZON_S <= now_ms < end
        )


def lend(known: ObstructionMap, drive: Drive, knows: Knows) -> Lent:
    """Let a drive pass, and what is owed be repaid."""
    begin_ms = drive.fixes[0].time_ms
    passages = Passages(
        tuple((one.entry_ms - begin_ms, one.exit_ms - begin_ms) for one in drive.covered)
    )
    plans: list[tuple[Plan, Reason]] = []
    says: dict[Knows, Says] = {
        Knows.PREDICTIONS: _Control(known, drive, begin_ms, passages, plans).says,
        Knows.TIMES: passages.known,
        Knows.NOTHING: lambda _: (),
    }
    beam = Beam(_SESSIONS, passages, says[knows], _SILENCE_MS, plans)
    end_ms = drive.fixes[-1].time_ms - begin_ms + _AFTER_MS
    beam.run(end_ms // PERIOD_MS * PERIOD_MS)
    vehicle_bits = beam.arrived[str(_VEHICLE)]
    return Lent(
        vehicle_bits,
        sum(beam.arrived.values()) - vehicle_bits,
        sum(bits for bits in beam.ledger.balances().values() if bits > 0),
        len(plans),
    )


@dataclass
class _Control:
    """What control predicts of the vehicle: by its fixes, and by blockages that the hub senses."""

    known: ObstructionMap
    drive: Drive
    begin_ms: int
    passages: Passages
    plans: Sequence[tuple[Plan, Reason]]
    _predictions: Predictions = field(init=False)
    _fed: int = 0
    # The blockages that have begun, and those that last of which the hub has told.
    _begun: set[int] = field(default_factory=set)
    _sensed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._predictions = Predictions(self.known)

    def says(self, now_ms: int) -> tuple[Blockage, ...]:
        """Return what is predicted at a time, in ms since the drive began."""
        self._sense(now_ms)
        at_ms, fixes = self.begin_ms + now_ms, self.drive.fixes
        while self._fed < len(fixes) and fixes[self._fed].time_ms + _REPORTED_MS <= at_ms:
            self._predictions.feed(_VEHICLE, fixes[self._fed])
            self._fed += 1
        if self._fed == len(fixes):
            # Where the drive ends, nothing is known of the way on.
            return ()
        return tuple(
            _earlier(one, self.begin_ms) for one in self._predictions.blockages_of(_VEHICLE, at_ms)
        )

    def _sense(self, now_ms: int) -> None:
        """Take in what the hub has sensed: a blockage that was not planned, and its end."""
        for begin, end in self.passages.spans_ms:
            if begin not in self._begun and begin + _SILENCE_MS + _REPORTED_MS <= now_ms:
                self._begun.add(begin)
                if end - begin > _SILENCE_MS and not self._is_planned(begin):
                    self._sensed.add(begin)
                    self._predictions.observe(_VEHICLE, self.begin_ms + begin, None)
            if begin in self._sensed and end + _REPORTED_MS <= now_ms:
                self._sensed.remove(begin)
                self._predictions.observe(_VEHICLE, self.begin_ms + begin, self.begin_ms + end)

    def _is_planned(self, entry_ms: int) -> bool:
        sent_ms = entry_ms - ONE_WAY_MS
        return any(
            segment.blocked and segment.start_ms <= sent_ms < segment.end_ms
            for piece in in_force(self.plans, sent_ms, sent_ms + 1)
            for segment in piece.plan.line(str(_VEHICLE)).segments
        )


def _earlier(one: Blockage, by_ms: int) -> Blockage:
    def within(moments: tuple[int, int] | None) -> tuple[int, int] | None:
        return None if moments is None else (moments[0] - by_ms, moments[1] - by_ms)

    return replace(
        one,
        entry_ms=one.entry_ms - by_ms,
        exit_ms=one.exit_ms - by_ms,
        entry_within_ms=within(one.entry_within_ms),
        exit_within_ms=within(one.exit_within_ms),
    )
