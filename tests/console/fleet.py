"""A fleet that reports as terminals and a hub do: one drives to a road tunnel, all are backlogged.

It follows the service's plans: it reports as sent what they give. So the console shows only
results of the service's own work.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from underpass_control.instants import milliseconds_of

from tests.console.service import ControlService, now_ms
from tests.drives.drive import Drive
from tests.drives.synthetic import passage_of

BEAM = "east"
HUB, NODES = 1, (11, 12, 13, 14)
# The terminal that drives to the road tunnel.
DRIVER = 11
# A console that does not escape names would run this.
HOSTILE = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'
NAMES = {11: "Bus 11", 12: "Bus 12", 13: "Ambulance 13", 14: HOSTILE}
FORWARD_BPS, RETURN_BPS = 8_000_000, 2_000_000
_TICK_MS = 1_000
_LINKS = ("forward", "return")


class Fleet:
    """Four terminals of one beam, and the hub that posts their reports each second."""

    def __init__(self, service: ControlService) -> None:
        """Register the beam and its terminals."""
        self._service = service
        self.drive: Drive = passage_of("A1 east", lead_m=900.0, tail_m=600.0)
        beam = {
            "name": "East",
            "forward_capacity_bps": FORWARD_BPS,
            "return_capacity_bps": RETURN_BPS,
            "one_way_delay_ms": 280,
        }
        service.call("PUT", f"/v1/beams/{BEAM}", beam)
        for node, name in NAMES.items():
            terminal = {"beam": BEAM, "name": name, "gateway": HUB}
            service.call("PUT", f"/v1/terminals/{node}", terminal)
        self._began_ms = now_ms()
        self.certificate_end_ms = self._began_ms + 30 * 86_400_000
        self._ticks = 0
        self._fixes = 0
        self._sent = {(node, link): 0 for node in NODES for link in _LINKS}
        self._blocked_ms: int | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start to report."""
        self._began_ms = now_ms()
        self._thread.start()

    def close(self) -> None:
        """Stop reporting."""
        self._ended.set()
        self._thread.join()

    def entry_ms(self) -> int:
        """Return when the driver enters the road tunnel."""
        return self._at(self.drive.covered[0].entry_ms)

    def _run(self) -> None:
        while not self._ended.wait(max(0.0, self._due_ms() - now_ms()) / 1000):
            # The service may be unreachable: the next report replaces this one.
            with suppress(OSError, AssertionError):
                self.report()
            self._ticks += 1

    def _due_ms(self) -> int:
        return self._began_ms + self._ticks * _TICK_MS

    def report(self) -> None:
        """Post all reports of this moment."""
        at_ms = now_ms()
        blocked = any(
            self._at(one.entry_ms) <= at_ms < self._at(one.exit_ms) for one in self.drive.covered
        )
        of_hub = self._status("forward", NODES, at_ms, blocked)
        of_hub["node"] = {"version": "2.0.1", "certificate_end_ms": self.certificate_end_ms}
        entries = [self._entry(HUB, of_hub, at_ms)]
        for node in NODES:
            status = self._status("return", (node,), at_ms, blocked)
            status["node"] = {"version": "1.2.3", "certificate_end_ms": self.certificate_end_ms}
            entries.append(self._entry(node, status, at_ms))
        entries += [self._entry(DRIVER, one, at_ms) for one in self._positions(at_ms)]
        entries += self._changes(blocked, at_ms)
        post = {"version": 1, "node": HUB, "sent_ms": at_ms, "reports": entries}
        answer = self._service.call("POST", "/v1/reports", post, self._service.gateway)
        assert not answer["refused"], answer

    def _status(
        self, link: str, nodes: tuple[int, ...], at_ms: int, blocked: bool
    ) -> dict[str, Any]:
        version, rates = self._planned(link, at_ms)
        links = []
        for node in nodes:
            is_blocked = blocked and node == DRIVER
            rate_bps = 0 if is_blocked else rates.get(node, 0)
            self._sent[node, link] += rate_bps * _TICK_MS // 8000
            links.append(
                {
                    "terminal": node,
                    "path": "satellite",
                    "direction": link,
                    "state": "blocked" if is_blocked else "up",
                    "offered_bytes": self._sent[node, link] + 400_000,
                    "backlogged_bytes": 400_000,
                    "sent_bytes": self._sent[node, link],
                    "streams": 3,
                    "rate_bps": rate_bps,
                    "figures": {
                        "rtt_ms": 652,
                        "queue_ms": 40,
                        "loss": 0.005,
                        "stored_bundles": 7,
                        "stored_bytes": 400_000,
                        "classes": [
                            {"name": HOSTILE[:20], "streams": 2, "backlogged_bytes": 300_000},
                            {"name": "bulk", "backlogged_bytes": 100_000},
                        ],
                    },
                    **({} if version is None else {"plan_version": version}),
                }
            )
        return {"kind": "status", "links": links, "synchronised": True, "time_ms": at_ms}

    def _planned(self, link: str, at_ms: int) -> tuple[int | None, dict[int, int]]:
        """Return the version of the plan in force, and what it gives each terminal now."""
        try:
            plan = self._service.call("GET", f"/v1/beams/{BEAM}/plans/{link}")
        except AssertionError:
            return None, {}
        rates: dict[int, int] = {}
        for line in plan["lines"]:
            for segment in line["segments"]:
                if milliseconds_of(segment["start"]) <= at_ms < milliseconds_of(segment["end"]):
                    rates |= dict.fromkeys(line["terminals"], segment["rate_bps"])
        return plan["plan"], rates

    def _positions(self, at_ms: int) -> list[dict[str, Any]]:
        found = []
        while self._fixes < len(self.drive.fixes):
            fix = self.drive.fixes[self._fixes]
            if self._at(fix.time_ms) > at_ms:
                break
            self._fixes += 1
            place: dict[str, Any] = {"longitude": fix.lon, "latitude": fix.lat}
            place |= {"speed_mps": fix.speed_mps, "heading_deg": fix.heading_deg}
            place |= {"gnss_time_ms": self._at(fix.time_ms), "synchronised": True}
            known = {name: value for name, value in place.items() if value is not None}
            found.append({"kind": "position", **known})
        return found

    def _changes(self, blocked: bool, at_ms: int) -> list[dict[str, Any]]:
        """Return the reports that a blockage has begun or ended."""
        if blocked == (self._blocked_ms is not None):
            return []
        entry_ms = at_ms if self._blocked_ms is None else self._blocked_ms
        ended = {} if blocked else {"exit_ms": at_ms}
        self._blocked_ms = entry_ms if blocked else None
        said = {"kind": "blockage", "path": "satellite", "source": "probing", "entry_ms": entry_ms}
        said |= {"terminal": DRIVER, **ended}
        return [
            self._entry(HUB, {**said, "direction": "forward"}, at_ms),
            self._entry(DRIVER, {**said, "direction": "return"}, at_ms),
        ]

    def _entry(self, node: int, report: dict[str, Any], at_ms: int) -> dict[str, Any]:
        uptime_ms = at_ms - self._began_ms + 60_000
        made = {**report, "uptime_ms": uptime_ms, "incarnation": 1}
        return {"node": node, "age_ms": 0, "report": made}

    def _at(self, drive_ms: int) -> int:
        """Return the time of a moment of the drive."""
        return self._began_ms + drive_ms - self.drive.fixes[0].time_ms
