"""What a sender would reach that knows the link, but late."""

from __future__ import annotations

from dataclasses import dataclass

from tests.traces.trace import Trace

_STEP_S = 0.005
# Beyond the round trip, which any feedback takes.
_LATE_S = 0.2


@dataclass(frozen=True)
class Oracle:
    """An oracle's figures over a whole trace: what arrived, and its queue."""

    # Of what the trace carries.
    part: float
    queue_p95_ms: float


def oracle(trace: Trace, direction: str) -> Oracle:
    """Send by a trace that is known one round trip and 200 ms late.

    At each moment the oracle knows the link's rate up to then, takes it to be the same since,
    and knows all that it sent itself. It sends at that rate, or nothing as long as by what it
    knows a queue stands. So a step up costs what the link has more for so long; a step down, a
    queue that it drains at once when it learns of it. A fluid model in steps of 5 ms; the queue
    has no bound, the wait is by the rate in force.
    """
    count = round(trace.duration_s / _STEP_S)
    times = [place * _STEP_S for place in range(count)]
    steps = [trace.at(direction, time) for time in times]
    room = [step.rate_bps * _STEP_S for step in steps]
    queue, arrived = [0.0], 0.0
    sent: list[float] = []
    waits_ms: list[float] = []
    for place, time in enumerate(times):
        known = max(0, place - round((trace.rtt_s(time) + _LATE_S) / _STEP_S))
        believed = queue[known]
        for amount in sent[known:place]:
            believed = max(0.0, believed + amount - room[known])
        sent.append(max(0.0, room[known] - believed))
        offered = queue[place] + sent[place]
        through = min(offered, room[place])
        queue.append(offered - through)
        if not trace.blocked(time):
            arrived += through * (1 - steps[place].loss)
        waits_ms.append(1000 * queue[-1] / steps[place].rate_bps if queue[-1] > 1 else 0.0)
    carried = trace.carried_bits(direction, 0.0, trace.duration_s)
    p95 = sorted(waits_ms)[int(0.95 * (count - 1))]
    return Oracle(arrived / carried, p95)
