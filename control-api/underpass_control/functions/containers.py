"""The containers of a slice, as both engines run them: one for each replica of each function."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

from underpass_control.functions.addressing import Addresses, Attachment
from underpass_control.functions.configuration import Files, certificate_of, files_of
from underpass_control.functions.descriptors import Descriptor
from underpass_control.functions.slices import Desired, FunctionBody

# The pool of slices' networks, unless the operator of a host sets another.
POOL = IPv4Network("10.213.0.0/16")


@dataclass(frozen=True)
class Site:
    """What the operator of a site has set up for slices."""

    attachments: Mapping[str, Attachment]
    pool: IPv4Network = POOL


@dataclass(frozen=True)
class Container:
    """One container.

    Attributes:
        name: the function's, and the replica's number from 1.
        networks: by name of the slice's network, the address there; None: any.
        resolvers: the DNS servers that it uses; empty: the engine's.
        certificate: the node whose certificate it needs.
        digest: of its files; when it changes, the container is made anew.
    """

    name: str
    function: FunctionBody
    descriptor: Descriptor
    files: Files
    networks: Mapping[str, str | None]
    resolvers: tuple[str, ...]
    needs: tuple[str, ...]
    certificate: int | None

    @property
    def digest(self) -> str:
        """Return a hash of the files."""
        text = "\0".join(f"{name}\0{text}" for name, text in sorted(self.files.items()))
        return hashlib.sha256(text.encode()).hexdigest()


def containers_of(
    desired: Desired, catalogue: Mapping[str, Descriptor], addresses: Addresses
) -> Iterator[Container]:
    """Yield the containers of a slice that has been checked.

    Raises:
        SliceError: It cannot run like this.
    """
    functions = {one.name: one for one in desired.body.functions}
    for one in desired.body.functions:
        descriptor = catalogue[one.function]
        files = files_of(desired, one, catalogue, addresses)
        resolvers = [
            str(address)
            for name in one.settings.get("resolvers", [])
            for address in addresses.shared(one, functions[name])
        ]
        needs = [one.settings[n] for n, d in descriptor.settings.items() if d.kind == "function"]
        needs += one.settings.get("resolvers", [])
        for replica in range(one.replicas):
            networks = {}
            for attached in one.networks:
                own = addresses.on(one.name, attached.network, replica)
                networks[attached.network] = attached.address if own is None else str(own)
            yield Container(
                name=container_name(one, replica),
                function=one,
                descriptor=descriptor,
                files=files,
                networks=networks,
                resolvers=tuple(resolvers),
                needs=tuple(
                    container_name(functions[name], n)
                    for name in needs
                    for n in range(functions[name].replicas)
                ),
                certificate=certificate_of(one),
            )


def container_name(one: FunctionBody, replica: int) -> str:
    """Return the name of a replica's container; no function can have this name."""
    return f"{one.name}.{replica + 1}"
