"""The instrument's own errors, which are part of all other figures."""

from __future__ import annotations

import json
import subprocess

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.testbed.programs import built


def run(_settings: Settings) -> Result:
    """Let satlink measure itself through a live beam."""
    result = Result("satlink")
    result.told["satlink"] = "rate, delay and loss: it makes them"
    # A missed target is a result, too: only the report judges it.
    measured = subprocess.run(
        [built("satlink"), "selftest"], capture_output=True, text=True, check=False
    )
    if not measured.stdout:
        raise RuntimeError(f"satlink cannot measure itself: {measured.stderr}")
    for found in map(json.loads, measured.stdout.splitlines()):
        made = record(f"satlink.{found['id']}", "satlink", found["values"])
        say(f"{made.id}: median {made.median:.4g} {made.unit}, p90 {made.p90:.4g}")
        result.records.append(made)
    return result
