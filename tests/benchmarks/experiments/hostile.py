"""Twenty terminals download beside an attacker, and beside one more that only downloads.

Five more have paced streams, which show how long chunks wait in the hub.
"""

from __future__ import annotations

import json
from typing import Any

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.testbed import addresses
from tests.testbed.loopback import Loopback
from tests.testbed.node import terminal_node
from tests.testbed.process import Process
from tests.testbed.programs import missing
from tests.testbed.swarm import SwarmHub, outcome

_HONEST, _PACED = 20, 5
_BEAM_BPS = 100_000_000
# A minute and a half of the beam's capacity: as long as all attacks take.
_BYTES = 50_000_000
_ORIGIN = f"{addresses.ORIGIN}:80"
# A quarter of each paced terminal's fair share while all download.
_OFFERED_BPS = _PACED * 1_000_000
_PACED_S = 60


def run(settings: Settings) -> Result:
    """Measure the twenty terminals' rates beside each neighbour, in turns."""
    result = Result("hostile")
    result.told["underpass"] = "nothing; warm: sessions up"
    if result.left_out(missing("underpass", "swarm")):
        return result
    ratios, delays, broken, memory = [], [], [], []
    for _ in range(settings.runs or 3):
        beside_bulk, _ = _beside(_bulk_user)
        beside_attacks, attacks = _beside(_attacker)
        ratios.append(beside_attacks["goodput_bps"] / beside_bulk["goodput_bps"])
        delays.append(beside_attacks["p99_ms"] - beside_bulk["p99_ms"])
        broken.append(float(beside_attacks["broken"]))
        memory.append(beside_attacks["hub_memory_bytes"] / (1 << 20))
        result.notes.setdefault("attacks", attacks)
        say(
            f"hostile  the others get {100 * ratios[-1]:.1f} % of what they get beside a bulk "
            f"user, p99 {delays[-1]:+.1f} ms"
        )
    for figure, values in {
        "hostile.goodput": ratios,
        "hostile.delay": delays,
        "hostile.broken": broken,
        "hostile.memory": memory,
    }.items():
        result.records.append(record(figure, "underpass", values))
    return result


def _bulk_user(hub: SwarmHub) -> Process:
    node = str(terminal_node(_HONEST))
    arguments = ("--first-node", node, "--settle-s", "0", "--measure-s", "600")
    return hub.terminals(1, *arguments, "--origin", _ORIGIN, "--bytes", "10000000000", name="bulk")


def _attacker(hub: SwarmHub) -> Process:
    nodes = {"node": _HONEST, "victim": 0, "absent": _HONEST + 1}
    named = [
        part for name, index in nodes.items() for part in (f"--{name}", str(terminal_node(index)))
    ]
    return hub.start("hostile", "hostile", "--origin", _ORIGIN, "--seconds", "600", *named)


def _beside(start: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    with Loopback() as bed:
        hub = SwarmHub(bed, _HONEST + 2 + _PACED, hub={"beam": {"rate_bps": _BEAM_BPS}})
        neighbour = start(hub)
        honest = hub.terminals(
            _HONEST, "--origin", _ORIGIN, "--bytes", str(_BYTES), "--measure-s", "300"
        )
        first = str(terminal_node(_HONEST + 2))
        paced = hub.streams(
            _PACED,
            *("--first-node", first, "--offered-bps", str(_OFFERED_BPS)),
            *("--measure-s", str(_PACED_S)),
            beam_bps=_BEAM_BPS,
        )
        told = outcome(honest, timeout_s=600)
        of_paced = outcome(paced, timeout_s=600)
        told["broken"] += of_paced["broken"]
        told["p99_ms"] = of_paced["excess"]["p99_ms"]
        told["hub_memory_bytes"] = hub.node.process.resident_bytes()
        if not neighbour.running():
            raise AssertionError(f"the neighbour ended first:\n{neighbour.log_tail()}")
        lines = neighbour.log_path.read_text().splitlines()
        return told, [json.loads(line) for line in lines if line.startswith('{"attack"')]
