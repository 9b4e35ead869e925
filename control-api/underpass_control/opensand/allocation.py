"""Turns plans and the time into requests to the NCC, and the time of the next ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from underpass_control.opensand.request import Request, request

# How often all is sent again: the NCC silently ignores requests for terminals not logged on.
_AGAIN_MS = 10_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """A rate over an interval; 0 while blocked."""

    start_ms: int
    end_ms: int
    rate_bps: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A terminal's rates: over time, and after the plan's end."""

    stretches: Sequence[Stretch]
    guaranteed_bps: int

    def rate_bps(self, now_ms: int) -> int:
        """Return the rate at a time."""
        for stretch in self.stretches:
            if stretch.start_ms <= now_ms < stretch.end_ms:
                return stretch.rate_bps
        return self.guaranteed_bps

    def next_ms(self, now_ms: int) -> int | None:
        """Return when the rate changes next."""
        coming = [at for one in self.stretches for at in (one.start_ms, one.end_ms) if at > now_ms]
        return min(coming, default=None)


@dataclass(frozen=True, slots=True)
class Version:
    """A plan: its start, and the profile of each satellite terminal."""

    version: int
    start_ms: int
    profiles: Mapping[int, Profile]


class Allocation:
    """Compares the rates sent to the NCC with those of the plans.

    Times are the NCC's: the caller subtracts the delay from the NCC to the terminals.
    """

    def __init__(self) -> None:
        self._plans: list[Version] = []
        self._told: dict[int, int] = {}
        self._told_all_ms = 0

    def follow(self, plan: Version) -> None:
        """Follow a plan from its start; until then the former one is in force."""
        self._plans = [one for one in self._plans if one.version < plan.version]
        self._plans.append(plan)

    def renew(self) -> None:
        """Assume that the NCC knows nothing: it has restarted, or is another one."""
        self._told.clear()

    def poll(self, now_ms: int) -> list[Request]:
        """Return the requests due now; falling rates first, so that no capacity is given twice."""
        plan = self._current(now_ms)
        if plan is None:
            return []
        if now_ms - self._told_all_ms >= _AGAIN_MS or not self._told:
            self._told_all_ms = now_ms
            self._told.clear()
        found = []
        for st_id, profile in plan.profiles.items():
            one = request(st_id, profile.rate_bps(now_ms))
            before = self._told.get(st_id)
            if one.cra_kbps != before:
                found.append((one.cra_kbps - (before or 0), one))
                self._told[st_id] = one.cra_kbps
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def next_ms(self, now_ms: int) -> int:
        """Return when to poll again at the latest."""
        plan = self._current(now_ms)
        profiles = () if plan is None else plan.profiles.values()
        coming = [at for one in profiles if (at := one.next_ms(now_ms)) is not None]
        coming += [one.start_ms for one in self._plans if one.start_ms > now_ms]
        return min([*coming, self._told_all_ms + _AGAIN_MS if self._told else now_ms + _AGAIN_MS])

    def _current(self, now_ms: int) -> Version | None:
        begun = [n for n, one in enumerate(self._plans) if one.start_ms <= now_ms]
        if not begun:
            return None
        del self._plans[: begun[-1]]
        return self._plans[0]
