"""Writes the trace files, and says what each carries: `python -m tests.traces`."""

from __future__ import annotations

from tests.traces.made import MADE
from tests.traces.oracle import oracle


def main() -> None:
    """Make every trace."""
    for make in MADE.values():
        trace = make()
        mean_bps = trace.carried_bits("forward", 0.0, trace.duration_s) / trace.duration_s
        late = oracle(trace, "forward")
        print(
            f"{trace.save()}: {len(trace.forward)} steps, {len(trace.blockages)} blockages, "
            f"carries {mean_bps / 1e6:.1f} Mbit/s; known one RTT + 200 ms late "
            f"{100 * late.part:.1f} %, p95 of the queue {late.queue_p95_ms:.0f} ms"
        )


if __name__ == "__main__":
    main()
