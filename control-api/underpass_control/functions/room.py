"""The room for slices at a site: CPUs, memory, and the rates at which they use attachments."""

from __future__ import annotations

import math
from collections.abc import Mapping

from underpass_control.functions.descriptors import Descriptor
from underpass_control.functions.sites import SiteFile
from underpass_control.functions.slices import Desired, FunctionBody, SliceError

_CPUS, _MEMORY = "CPUs", "MB of memory"
# How much of each resource, by its name.
Needs = Mapping[str, float]


def needs_of(desired: Desired, catalogue: Mapping[str, Descriptor], site: SiteFile) -> Needs:
    """Return what a slice, with all settings filled in, may use at most.

    Raises:
        SliceError: A function that keeps to no rate is on an attachment that has a maximum.
    """
    used = [(catalogue[one.function].resources, one.replicas) for one in desired.body.functions]
    needs: dict[str, float] = {
        _CPUS: sum(one.cpus * count for one, count in used),
        _MEMORY: sum(one.memory_mb * count for one, count in used),
    }
    bounded = {one.name for one in site.attachment if one.is_bounded}
    places = {one.name: one.attachment for one in desired.body.networks}
    for function in desired.body.functions:
        for attached in function.networks:
            attachment = places[attached.network]
            if attachment is None or attachment not in bounded:
                continue
            for what, rate in zip(_over(attachment), _rates(function, attachment), strict=True):
                needs[what] = needs.get(what, 0) + rate
    return needs


def _over(attachment: str) -> tuple[str, str]:
    return f"bit/s sent over {attachment}", f"bit/s received over {attachment}"


def _rates(one: FunctionBody, attachment: str) -> tuple[int, int]:
    """Return the most that a function sends and receives over its hop, in bit/s."""
    given = one.settings
    if one.function in ("shaper", "terminal"):
        return given["send_rate_bps"], given["receive_rate_bps"]
    if one.function == "hub":
        return given["rate_bps"], sum(each["receive_rate_bps"] for each in given["terminals"])
    raise SliceError(
        f"{one.name}: a {one.function} keeps to no rate, and {attachment} has a maximum"
    )


class Room:
    """The resources left for slices at the site, in all and for each tenant."""

    def __init__(self, site: SiteFile) -> None:
        self._all: dict[str, float] = {_CPUS: site.cpus, _MEMORY: site.memory_mb}
        self._each: dict[str, float] = {
            _CPUS: site.most_cpus_of_tenant,
            _MEMORY: site.most_memory_mb_of_tenant,
        }
        for one in site.attachment:
            most = (one.tenant_send_bps, one.tenant_receive_bps)
            for what, rate in zip(_over(one.name), most, strict=True):
                if rate is not None:
                    self._each[what] = rate
        self._of_tenant: dict[str, dict[str, float]] = {}
        # By slice, what it has.
        self._held: dict[str, Needs] = {}

    def hold(self, desired: Desired, needs: Needs) -> None:
        """Keep for a slice what it has, whatever is left, until it takes something else."""
        for _, left in self._scopes(desired.tenant):
            for what in left.keys() & needs.keys():
                left[what] -= needs[what]
        self._held[desired.name] = needs

    def take(self, desired: Desired, needs: Needs) -> Needs:
        """Reserve the most of what a slice has and what it may use, and return it.

        What it has stays reserved, since its former containers run until the change is applied.

        Raises:
            SliceError: It needs more than it has, and than is left; it keeps what it has.
        """
        held = self._held.get(desired.name, {})
        for whose, left in self._scopes(desired.tenant):
            for what, wanted in needs.items():
                has = held.get(what, 0)
                room = has + left.get(what, math.inf)
                if wanted > max(room, has):
                    raise SliceError(
                        f"{whose} has no room: {wanted:.12g} {what} are asked for, "
                        f"and {max(room, has):.12g} left"
                    )
        both = {
            what: max(held.get(what, 0), needs.get(what, 0)) for what in held.keys() | needs.keys()
        }
        self.hold(desired, {what: -amount for what, amount in held.items()})
        self.hold(desired, both)
        return both

    def _scopes(self, tenant: str) -> tuple[tuple[str, dict[str, float]], ...]:
        own = self._of_tenant.setdefault(tenant, dict(self._each))
        return ("the site", self._all), (f"the tenant {tenant}", own)
