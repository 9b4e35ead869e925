"""A link with a lower or higher rate than all subjects were told."""

from __future__ import annotations

import dataclasses

from tests.benchmarks.bench import WIDE_WINDOWS, Bench, Settings
from tests.benchmarks.experiments.loaded import Load, add_records, constant, loaded_series
from tests.benchmarks.records import Result
from tests.testbed.profile import PROFILE_G
from tests.testbed.topology import Testbed

_SECONDS = 30.0
_QUEUE_S = 1.0
# The time beyond the round trip by which a sender must know the rate.
_KNOWN_S = 0.2
# Name, told rate, true rate, bit/s.
_CASES = (
    ("half", 140_000_000, 70_000_000),
    ("seventh", 140_000_000, 20_000_000),
    ("twice", 70_000_000, 140_000_000),
)


def run(settings: Settings) -> Result:
    """Load links with half, a seventh and twice the told rate.

    A sender must know the rate one round trip and 200 ms after the start. The time counts from when
    the excess sent until then has drained; with more rate than told, from ten round trips on.
    """
    result = Result("wrong-hint")
    rtt_s = PROFILE_G.rtt_s
    for name, told_bps, real_bps in _CASES:
        told = dataclasses.replace(PROFILE_G.forward, rate_bps=told_bps)
        profile = dataclasses.replace(PROFILE_G, forward=told)
        too_fast = max(0.0, told_bps / real_bps - 1)
        drained_s = (rtt_s + _KNOWN_S) + min(_QUEUE_S, too_fast * (rtt_s + _KNOWN_S))
        load = Load(_SECONDS, drained_s if told_bps > real_bps else 10 * rtt_s)
        with Testbed(profile, sysctls=WIDE_WINDOWS, seed=settings.seed) as testbed:
            # The buffer is a second at the true rate, which holds between runs, too: a second start
            # has measured it.
            limit_bytes = round(real_bps * _QUEUE_S / 8)
            testbed.satlink.set_link(
                direction="forward", rate_bps=real_bps, queue={"limit_bytes": limit_bytes}
            )
            on = Bench(testbed, settings)
            on.start_untold("hints")
            runs = loaded_series(on, constant(profile, real_bps), load)
            for subject, loaded in zip(on.subjects, runs, strict=True):
                add_records(result, f"wrong-hint.{name}", subject, loaded)
            result.notes |= {f"{name}: {key}": note for key, note in on.notes().items()}
            result.told |= on.told()
    return result
