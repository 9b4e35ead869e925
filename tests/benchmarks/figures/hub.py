"""The figures of many streams and terminals at one hub, and of hostile ones."""

from __future__ import annotations

from tests.benchmarks.figures.figure import Figure

HUB = [
    *(
        figure
        for name, size in (("4k", "4 KiB"), ("64k", "64 KiB"))
        for figure in (
            Figure(
                f"shards-one.{name}",
                f"A hub's engine without sockets, 1,000 terminals, bundles of {size}: "
                "per second of its processor time",
                "bundles",
                target=60_000.0 if name == "4k" else None,
                more_is_better=True,
            ),
            Figure(
                f"shards-pair.{name}",
                "The same, the work of the terminals' engines counted too",
                "bundles",
                more_is_better=True,
            ),
            Figure(
                f"shards-apart.{name}",
                f"Two such hubs on two threads, bundles of {size}: against twice one alone",
                "1",
                more_is_better=True,
            ),
            Figure(
                f"shards-two.{name}",
                f"Two shards of one such hub on two threads, bundles of {size}: "
                "against two hubs that know nothing of each other",
                "1",
                target=0.95,
                more_is_better=True,
            ),
        )
    ),
    Figure(
        "idle-streams.memory",
        "10,000 open idle streams, both nodes together",
        "KiB per stream",
        target=48.0,
    ),
    Figure(
        "swarm-idle.memory",
        "2,000 idle terminals with eight sessions each, ten minutes: the hub's memory",
        "KiB per terminal",
        target=256.0,
    ),
    Figure("swarm-idle.cpu", "The same: the hub's processor time", "% of a core", target=15.0),
    Figure(
        "swarm-idle.alive",
        "The same: terminals connected and not taken for blocked at the end",
        "%",
        target=100.0,
        more_is_better=True,
    ),
    Figure(
        "swarm-active.use",
        "250 terminals, 5 MB each at once, beam of 400 Mbit/s: payload",
        "% of the beam",
        target=92.0,
        more_is_better=True,
    ),
    Figure("swarm-active.cpu", "The same: the hub's processor time", "s per 100 MB", target=0.6),
    Figure("swarm-active.jain", "The same: Jain's index", "", more_is_better=True),
    Figure("swarm-active.broken", "The same: broken downloads", "", target=0.0),
    Figure(
        "swarm-streams.delivered",
        "1,000 terminals with 5 paced downloads each, 200 Mbit/s offered on a beam of 250, 64 "
        "blocked at any time: delivered of what was offered",
        "%",
        target=95.0,
        more_is_better=True,
    ),
    Figure(
        "swarm-streams.delay",
        "The same: delay in the hub beyond an ideal fair queue's, p99 of all chunks",
        "ms",
        target=20.0,
    ),
    Figure(
        "swarm-streams.delay-clear",
        "The same, chunks that did not wait for the end of a blockage",
        "ms",
    ),
    Figure("swarm-streams.delay-recovery", "The same, chunks that did", "ms"),
    Figure(
        "swarm-streams.jain",
        "The same: Jain's index of what each terminal was delivered of what the ideal queue would "
        "have delivered to it",
        "",
        target=0.99,
        more_is_better=True,
    ),
    Figure("swarm-streams.broken", "The same: broken streams", "", target=0.0),
    Figure("swarm-streams.cpu", "The same: the hub's processor time", "% of a core"),
    Figure(
        "swarm-streams.cpu-swarm",
        "The same: processor time of terminals and origin, on the hub's cores",
        "% of a core",
    ),
    Figure(
        "hostile.goodput",
        "20 terminals that download beside one that attacks, against beside a bulk user",
        "",
        target=0.99,
        more_is_better=True,
    ),
    Figure(
        "hostile.worst-goodput",
        "The same beside the attack that costs them most",
        "",
        target=0.99,
        more_is_better=True,
    ),
    Figure(
        "hostile.delay",
        "The same: p99 of the delay in the hub of five others' paced streams, beyond that beside a "
        "bulk user",
        "ms",
        target=20.0,
    ),
    Figure(
        "hostile.worst-delay",
        "The same beside the attack that delays them most",
        "ms",
        target=20.0,
    ),
    Figure("hostile.broken", "The same: broken downloads", "", target=0.0),
    Figure("hostile.memory", "The same: the hub's memory behind it", "MiB", target=768.0),
    Figure(
        "hostile.attacker-cpu",
        "The same: processor time of the attacker's own process, on the hub's cores, beside the "
        "attack that takes most",
        "% of a core",
    ),
    *(
        Figure(
            f"beside-bulk.{kind}",
            f"New {kind}s of 10 kB beside 50 uploads of their own class on 2 Mbit/s, p95 beyond "
            "the RTT, profile V",
            "ms",
            target=150.0,
        )
        for kind in ("download", "upload")
    ),
    Figure(
        "idle-beam.upload",
        "200 idle terminals on a return link of 10 Mbit/s, 560 ms, and one that uploads: its "
        "upload, of what headers leave of the beam",
        "%",
        target=90.0,
        more_is_better=True,
    ),
    Figure(
        "idle-beam.plan",
        "The same: what the plan gives to the one that uploads, of the beam",
        "%",
        more_is_better=True,
    ),
    Figure("idle-beam.idle", "The same: what the 200 send, of the beam", "%"),
    Figure(
        "upgrade.broken",
        "1,000 downloads of 60 kbit/s through ten upgrades in place, of hub and terminal in turn, "
        "profile G without loss: those that are not whole",
        "downloads",
        target=0.0,
    ),
    Figure(
        "upgrade.wrong",
        "The same: those with bytes lost, changed or doubled",
        "downloads",
        target=0.0,
    ),
    Figure(
        "upgrade.pause",
        "The same: the longest pause of any of them, in any of the upgrades",
        "RTT",
        target=2.0,
    ),
]
