"""Addresses and routes of a slice: computed, so that two renderings of it are the same.

Each slice has a /24 of the pool, each of its own networks a /27 of that. The first address of a
network is its way out: it belongs to the forwarder whose first network this is. There is no other
way out: the host has no address on the network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from underpass_control.functions.descriptors import Descriptor
from underpass_control.functions.slices import Desired, FunctionBody, SliceError

_PREFIX = 27
# The first of a network's addresses is its way out.
_FIRST_HOST = 2


@dataclass(frozen=True)
class Attachment:
    """A network of a host to which its operator lets slices of some tenants attach.

    Attributes:
        network: the Docker network, which exists; in Kubernetes, the network attachment
            definition.
        gateway: the way out of it, for forwarders.
    """

    name: str
    network: str
    tenants: frozenset[str]
    gateway: IPv4Address | None = None


@dataclass(frozen=True)
class Forwarding:
    """The addresses and routes of a forwarder.

    Attributes:
        inner: the subnet whose way out it is, and its address there for that.
        outer: its subnet on the other side; None if that is an attachment.
        default: the way out of its second network; None if there is none.
        routes: subnets of the slice behind other forwarders, and the next hop to each.
    """

    inner: IPv4Network
    inner_gateway: IPv4Address
    outer: IPv4Network | None
    default: IPv4Address | None
    routes: Mapping[IPv4Network, IPv4Address]


class Addresses:
    """The addresses of one slice."""

    def __init__(
        self,
        desired: Desired,
        catalogue: Mapping[str, Descriptor],
        pool: IPv4Network,
        attachments: Mapping[str, Attachment],
    ) -> None:
        """Take the attachments that the slice may use, by name.

        Raises:
            SliceError: The slice names an attachment that its tenant may not use.
        """
        self._desired = desired
        self._catalogue = catalogue
        block = IPv4Network((int(pool.network_address) + (desired.number << 8), 24))
        if not block.subnet_of(pool):
            raise SliceError(f"the pool {pool} has no more addresses for slices")
        own = [one for one in desired.body.networks if one.attachment is None]
        self.subnets = dict(
            zip((one.name for one in own), block.subnets(new_prefix=_PREFIX), strict=False)
        )
        self.attached: dict[str, Attachment] = {}
        for one in desired.body.networks:
            if one.attachment is None:
                continue
            found = attachments.get(one.attachment)
            if found is None or desired.tenant not in found.tenants:
                raise SliceError(
                    f"{one.name}: the site has no attachment {one.attachment} for {desired.tenant}"
                )
            self.attached[one.name] = found
        self._hosts = self._numbered()
        self.forwarders = {
            one.networks[0].network: one
            for one in desired.body.functions
            if catalogue[one.function].forwards
        }

    def on(self, function: str, network: str, replica: int = 0) -> IPv4Address | None:
        """Return a container's address on one of the slice's own networks."""
        return self._hosts.get((function, replica, network))

    def shared(self, one: FunctionBody, other: FunctionBody) -> list[IPv4Address]:
        """Return the addresses of the other's replicas on the first network that two share."""
        own = [attached.network for attached in other.networks]
        for attached in one.networks:
            if attached.network in own and attached.network in self.subnets:
                found = [self.on(other.name, attached.network, n) for n in range(other.replicas)]
                return [address for address in found if address is not None]
        raise SliceError(f"{one.name}: it has no own network of the slice with {other.name}")

    def gateway_of(self, network: str) -> IPv4Address | None:
        """Return the way out of a network: a forwarder's address, or an attachment's gateway."""
        if network in self.attached:
            return self.attached[network].gateway
        if network not in self.forwarders:
            return None
        return self.subnets[network][1]

    def forwarding(self, one: FunctionBody) -> Forwarding:
        """Return the addresses and routes of a forwarder."""
        inner, outer = (attached.network for attached in one.networks)
        return Forwarding(
            inner=self.subnets[inner],
            inner_gateway=self.subnets[inner][1],
            outer=self.subnets.get(outer),
            default=self.gateway_of(outer),
            routes=self._routes(one),
        )

    def _routes(self, one: FunctionBody) -> dict[IPv4Network, IPv4Address]:
        """Return the next hops to the subnets behind other forwarders, the nearest first."""
        found: dict[IPv4Network, IPv4Address] = {}
        mine = {attached.network for attached in one.networks}
        known = set(mine)
        # Each reached network, with the address of the next forwarder on the way to it.
        waiting: deque[tuple[str, IPv4Address | None]] = deque((name, None) for name in mine)
        while waiting:
            reached, through = waiting.popleft()
            for inner, forwarder in self.forwarders.items():
                outer = forwarder.networks[1].network
                if outer != reached or inner in known or forwarder.name == one.name:
                    continue
                hop = through or self.on(forwarder.name, reached)
                if hop is None:
                    # Beyond an attachment the slice assigns no addresses.
                    continue
                known.add(inner)
                found[self.subnets[inner]] = hop
                waiting.append((inner, hop))
        return found

    def _numbered(self) -> dict[tuple[str, int, str], IPv4Address]:
        numbers = dict.fromkeys(self.subnets, _FIRST_HOST)
        found = {}
        for one in self._desired.body.functions:
            for replica in range(one.replicas):
                for attached in one.networks:
                    subnet = self.subnets.get(attached.network)
                    if subnet is None:
                        continue
                    number = numbers[attached.network]
                    if number >= subnet.num_addresses - 1:
                        raise SliceError(f"{attached.network}: it has no more addresses")
                    found[one.name, replica, attached.network] = subnet[number]
                    numbers[attached.network] = number + 1
        return found
