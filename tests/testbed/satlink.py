"""The emulated hop: starts `satlink` and uses its control socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from underpass_control.toml_text import toml_text

from tests.testbed.process import Process
from tests.testbed.profile import Profile
from tests.testbed.programs import built
from tests.traces.trace import Trace


class SatlinkError(RuntimeError):
    """satlink refused a request; the text is satlink's."""


@dataclass(frozen=True)
class Device:
    """An end of the hop: a TUN device in a namespace."""

    namespace: str
    device: str
    addresses: list[str]
    routes: list[str]

    def table(self) -> dict[str, object]:
        """Return the device in satlink's configuration format."""
        return {
            "netns": self.namespace,
            "device": self.device,
            "addresses": self.addresses,
            "routes": self.routes,
        }


@dataclass(frozen=True)
class Station:
    """A terminal of the beam: its device, the networks behind it, and its links."""

    name: str
    device: Device
    prefixes: list[str]
    profile: Profile


class Satlink:
    """One running beam."""

    def __init__(
        self,
        hub: Device,
        stations: Sequence[Station],
        *,
        shared: Profile | None,
        seed: int,
        directory: Path,
        name: str,
        start: Callable[[str, Sequence[str]], Process],
    ) -> None:
        self.socket_path = directory / f"{name}.sock"
        config_path = directory / f"{name}.toml"
        config = {
            "socket": self.socket_path,
            "seed": seed,
            "beam": {
                "forward": {"capacity_bps": shared and shared.forward.rate_bps},
                "return": {"capacity_bps": shared and shared.return_.rate_bps},
            },
            "hub": hub.table(),
            "terminal": [
                {
                    "name": station.name,
                    **station.device.table(),
                    "prefixes": station.prefixes,
                    "forward": station.profile.forward.satlink_table(),
                    "return": station.profile.return_.satlink_table(),
                }
                for station in stations
            ],
        }
        config_path.write_text(toml_text(config))
        self.process = start(name, [built("satlink"), "run", "--config", str(config_path)])
        self.process.wait_until(self._answers)

    def request(self, cmd: str, **arguments: object) -> dict[str, Any]:
        """Send one request, return the reply; raise `SatlinkError` if it is refused."""
        line = json.dumps({"cmd": cmd, **{k: v for k, v in arguments.items() if v is not None}})
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(10)
            sock.connect(str(self.socket_path))
            sock.sendall(line.encode() + b"\n")
            with sock.makefile("rb") as replies:
                reply: dict[str, Any] = json.loads(replies.readline())
        if not reply["ok"]:
            raise SatlinkError(f"{line}: {reply.get('error')}")
        return reply

    def block(self, terminal: str, *, for_s: float | None = None) -> None:
        """Block a terminal, for a time or until `unblock`."""
        self.request("block", terminal=terminal, for_s=for_s)

    def unblock(self, terminal: str) -> None:
        """Unblock a terminal."""
        self.request("unblock", terminal=terminal)

    def schedule(self, terminal: str, blockages: Sequence[tuple[float, float]]) -> None:
        """Replace a terminal's blockages: beginnings by `time.monotonic()`, and durations, s."""
        epoch_s = self.statistics()["epoch_ns"] / 1e9
        table = [{"start_s": at - epoch_s, "duration_s": length} for at, length in blockages]
        self.request("schedule", terminal=terminal, blockages=table)

    def follow(self, trace: Trace) -> float:
        """Have every terminal follow a trace from now on; return now by `time.monotonic()`.

        This resets the counts.
        """
        self.request("trace", trace=trace.document())
        self.request("reset-stats")
        self.request("epoch")
        return float(self.statistics()["epoch_ns"]) / 1e9

    def unfollow(self) -> None:
        """Return the links to their configuration."""
        self.request("trace")

    def queue_ms(self, terminal: str, direction: str) -> list[tuple[float, float]]:
        """Return the age of a queue's oldest packet over time, since the counts were reset.

        Pairs of time, by `time.monotonic()`, and age, ms; 10 ms apart.
        """
        series = self.request("queue", terminal=terminal, direction=direction)["queue"]
        samples = (us / 1000 for us, count in series["runs"] for _ in range(count))
        begin_s, step_s = series["begin_ns"] / 1e9, series["step_ns"] / 1e9
        return [(begin_s + place * step_s, waited) for place, waited in enumerate(samples)]

    def seed(self, seed: int) -> None:
        """Restart the patterns of loss and jitter, so that all subjects meet the same."""
        self.request("seed", seed=seed)

    def set_link(self, *, direction: str | None = None, **link: object) -> None:
        """Change keys of every terminal's links at run time."""
        self.request("set", direction=direction, link=link)

    def set_loss(self, probability: float, *, direction: str | None = None) -> None:
        """Set the independent loss of every terminal's link, in one direction or both."""
        model = {"model": "independent", "probability": probability}
        self.set_link(direction=direction, loss=model if probability else {"model": "none"})

    def reset_statistics(self) -> None:
        """Set all counts to zero."""
        self.request("reset-stats")

    def statistics(self) -> dict[str, Any]:
        """Return satlink's counts."""
        stats: dict[str, Any] = self.request("stats")["stats"]
        return stats

    def _answers(self) -> bool:
        try:
            self.statistics()
        except (OSError, ValueError):
            return False
        return True
