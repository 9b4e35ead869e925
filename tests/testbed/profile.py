"""The profiles of the emulated hops."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Link:
    """One direction of a hop."""

    rate_bps: int | None = None
    delay_ms: float = 0.0
    loss: float = 0.0
    queue_ms: float | None = None
    # Other keys of a link in satlink's configuration.
    other: Mapping[str, object] = field(default_factory=dict)

    def satlink_table(self) -> dict[str, object]:
        """Return the link in satlink's configuration format."""
        return {
            "rate_bps": self.rate_bps,
            "delay_ms": self.delay_ms,
            "loss": {"model": "independent", "probability": self.loss} if self.loss else None,
            "queue": {"limit_ms": self.queue_ms} if self.queue_ms is not None else None,
            **self.other,
        }


@dataclass(frozen=True)
class Profile:
    """Both directions of a hop: forward is hub to terminal."""

    name: str
    forward: Link
    return_: Link

    @property
    def rtt_ms(self) -> float:
        """Return the round-trip time without load."""
        return self.forward.delay_ms + self.return_.delay_ms

    @property
    def rtt_s(self) -> float:
        """Return the round-trip time without load, in seconds."""
        return self.rtt_ms / 1000

    def with_loss(self, probability: float) -> Profile:
        """Return the same hop with another loss probability in both directions."""
        return Profile(
            f"{self.name} with loss {probability:g}",
            dataclasses.replace(self.forward, loss=probability),
            dataclasses.replace(self.return_, loss=probability),
        )


def symmetric(name: str, link: Link) -> Profile:
    """Return a hop with equal directions."""
    return Profile(name, link, link)


# A production GEO service.
PROFILE_G = symmetric("G", Link(rate_bps=140_000_000, delay_ms=300.0, loss=0.0005, queue_ms=2000.0))
# A vehicle's terminal.
PROFILE_V = Profile(
    "V",
    Link(rate_bps=40_000_000, delay_ms=280.0, queue_ms=1000.0),
    Link(rate_bps=2_000_000, delay_ms=280.0, queue_ms=1000.0),
)
# The loopback experiments need a hop without any limits.
PERFECT = symmetric("perfect", Link())
# The beam of Oh, Kim and Kim's experiment, without loss.
PAPER_BEAM = symmetric("paper", Link(rate_bps=8_000_000, delay_ms=250.0, queue_ms=500.0))
