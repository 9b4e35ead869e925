"""A slice as a project of Docker Compose.

The document is JSON, which is also YAML: it is never assembled from texts. Its containers see only
their own files and certificates on the host, and have only the rights of their descriptor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from underpass_control.functions.addressing import Addresses
from underpass_control.functions.configuration import CERTIFICATES, FOLDER, Files
from underpass_control.functions.containers import Container, Site, containers_of
from underpass_control.functions.descriptors import Descriptor
from underpass_control.functions.slices import Desired

_BRIDGE = "com.docker.network.bridge"


@dataclass(frozen=True)
class Project:
    """The input of `docker compose`.

    Attributes:
        document: the compose file.
        files: of each container, below the project's folder.
        certificates: the nodes whose certificates it needs.
    """

    name: str
    document: dict[str, Any]
    files: Mapping[str, Files]
    certificates: frozenset[int]


def project_name(slice_name: str) -> str:
    """Return the name of a slice's project."""
    return f"underpass-slice-{slice_name}"


def project(
    desired: Desired,
    catalogue: Mapping[str, Descriptor],
    site: Site,
    certificates: str = "/etc/underpass/slices-pki",
) -> Project:
    """Return a slice's project; certificates are below a folder, `TENANT/nodes/NODE`.

    Raises:
        SliceError: It cannot be run at this site.
    """
    addresses = Addresses(desired, catalogue, site.pool, site.attachments)
    containers = list(containers_of(desired, catalogue, addresses))
    folder = f"{certificates}/{desired.tenant}/nodes"
    document = {
        "services": {one.name: _service(one, folder) for one in containers},
        "networks": {
            one.name: _network(desired, one.name, addresses) for one in desired.body.networks
        },
        "volumes": {
            f"{one.name}.{volume}": {} for one in containers for volume in one.descriptor.volumes
        },
    }
    return Project(
        name=project_name(desired.name),
        document=_literal(document),
        files={one.name: one.files for one in containers if one.files},
        certificates=frozenset(
            one.certificate for one in containers if one.certificate is not None
        ),
    )


def _service(one: Container, certificates: str) -> dict[str, Any]:
    descriptor = one.descriptor
    volumes = [f"{one.name}.{name}:{path}" for name, path in descriptor.volumes.items()]
    if one.files:
        volumes.append(f"./{one.name}:{FOLDER}:ro")
    if one.certificate is not None:
        volumes.append(f"{certificates}/{one.certificate}:{CERTIFICATES}:ro")
    health, most = descriptor.health, descriptor.resources
    service: dict[str, Any] = {
        "image": descriptor.image,
        # Images are the operator's own: they are not pulled from elsewhere.
        "pull_policy": "never",
        "command": descriptor.command,
        "labels": {
            # Compose makes the container anew if, and only if, one of these changes.
            "underpass.configuration": one.digest,
            "underpass.generation": str(one.function.generation),
        },
        "restart": "unless-stopped",
        "stop_grace_period": "20s",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "cpus": most.cpus,
        "mem_limit": f"{most.memory_mb}m",
        "memswap_limit": f"{most.memory_mb}m",
        "pids_limit": most.processes,
        "logging": {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}},
        "healthcheck": {
            "test": ["CMD", *health.command],
            "interval": f"{health.interval_s}s",
            "timeout": f"{health.timeout_s}s",
            "start_period": f"{health.start_s}s",
            "retries": health.retries,
        },
        "networks": {
            name: {} if address is None else {"ipv4_address": address}
            for name, address in one.networks.items()
        },
    }
    # Members that are empty are left out: some versions refuse them.
    service |= {
        name: value
        for name, value in {
            "cap_add": list(descriptor.capabilities),
            "tmpfs": list(descriptor.tmpfs),
            "sysctls": dict(descriptor.sysctls),
            "volumes": volumes,
            "dns": list(one.resolvers),
            "depends_on": list(one.needs),
        }.items()
        if value
    }
    return service


def _network(desired: Desired, name: str, addresses: Addresses) -> dict[str, Any]:
    if name in addresses.attached:
        return {"external": True, "name": addresses.attached[name].network}
    subnet = addresses.subnets[name]
    return {
        # The engine takes a container's way out from the network whose name sorts first: one of the
        # slice with a forwarder, before an attachment, whose name begins with a letter.
        "name": f"0-underpass.{desired.name}.{name}",
        "driver": "bridge",
        "internal": addresses.gateway_of(name) is None,
        "driver_opts": {
            # The host has no address there, so it neither answers nor forwards.
            f"{_BRIDGE}.inhibit_ipv4": "true",
            f"{_BRIDGE}.enable_ip_masquerade": "false",
        },
        "ipam": {"config": [{"subnet": str(subnet), "gateway": str(subnet[1])}]},
    }


def _literal(value: Any) -> Any:
    """Return a document with everything escaped that Compose would replace."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {_literal(name): _literal(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_literal(one) for one in value]
    return value
