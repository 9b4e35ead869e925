"""Protocol work without sockets: how many bundles per second an engine carries."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.testbed.programs import built, missing

_NEIGHBOURS = 1000
_SIZES = {"4k": 4096, "64k": 65536}
_SECONDS = 2.0
_RUNS = 10


def run(settings: Settings) -> Result:
    """Measure one engine on one thread, two shards of a hub on two, and two hubs on two."""
    result = Result("shards")
    result.told["underpass"] = "nothing; warm: sessions up, streams open"
    if result.left_out(missing("shards")):
        return result
    for name, size in _SIZES.items():
        alone, apart, shards = [], [], []
        for _ in range(settings.runs or _RUNS):
            alone.append(measure(size, threads=1))
            apart.append(measure(size, threads=2, apart=True))
            shards.append(measure(size, threads=2))
        figures = {
            f"shards-one.{name}": [told["bundles_per_hub_s"] for told in alone],
            f"shards-pair.{name}": [told["bundles_per_cpu_s"] for told in alone],
            f"shards-apart.{name}": [
                two["bundles_per_s"] / (2 * one["bundles_per_s"])
                for one, two in zip(alone, apart, strict=True)
            ],
            f"shards-two.{name}": [
                two["bundles_per_s"] / hubs["bundles_per_s"]
                for two, hubs in zip(shards, apart, strict=True)
            ],
        }
        for figure, values in figures.items():
            made = record(figure, "underpass", values)
            say(f"{figure}: median {made.median:.4g} {made.unit}")
            result.records.append(made)
        result.notes[name] = {"one thread": alone, "two hubs": apart, "two shards": shards}
    return result


def measure(
    size: int, threads: int, seconds: float = _SECONDS, apart: bool = False
) -> dict[str, Any]:
    """Carry bundles with `size` bytes of payload for a time; return the output of `shards`."""
    arguments = {"bytes": size, "neighbours": _NEIGHBOURS, "threads": threads, "seconds": seconds}
    command = [built("shards")]
    for name, value in arguments.items():
        command += [f"--{name}", str(value)]
    command += ["--apart"] if apart else []
    told: dict[str, Any] = json.loads(subprocess.check_output(command, text=True))
    return told
