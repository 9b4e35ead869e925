"""A slice as manifests of Kubernetes.

Networks of a slice are further interfaces of its pods, by Multus and the CNI plugins `bridge` and
`static`; so all pods of a slice run on one machine. The cluster's own network, which every pod has,
is closed to them by a network policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any

from underpass_control.functions.addressing import Addresses
from underpass_control.functions.configuration import CERTIFICATES, FOLDER
from underpass_control.functions.containers import Container, Site, containers_of
from underpass_control.functions.descriptors import Descriptor
from underpass_control.functions.slices import Desired

_USER = 10001
_STATE_SIZE = "4Gi"
_NAME = "app.kubernetes.io/name"
_SLICE = "underpass/slice"
# A pod may have no more DNS servers, and no resolver of C libraries asks more.
_MOST_RESOLVERS = 3


def manifests(
    desired: Desired, catalogue: Mapping[str, Descriptor], site: Site
) -> list[dict[str, Any]]:
    """Return a slice's resources, in the order in which they are made.

    Raises:
        SliceError: It cannot run like this.
    """
    addresses = Addresses(desired, catalogue, site.pool, site.attachments)
    containers = list(containers_of(desired, catalogue, addresses))
    return list(_resources(desired, addresses, containers))


def _resources(
    desired: Desired, addresses: Addresses, containers: list[Container]
) -> Iterator[dict[str, Any]]:
    namespace = f"underpass-slice-{desired.name}"
    yield {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace, "annotations": {"underpass/tenant": desired.tenant}},
    }
    yield _closed(desired, namespace)
    for place, (name, _subnet) in enumerate(addresses.subnets.items()):
        yield _network(name, f"us{desired.number}-{place}", namespace)
    for one in containers:
        meta = _metadata(desired, one, namespace)
        if one.files:
            yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": one.files}
        yield _workload(desired, one, addresses, meta)
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": {"underpass/function": one.function.name}},
            },
        }


def _metadata(desired: Desired, one: Container, namespace: str) -> dict[str, Any]:
    return {
        "name": one.name.replace(".", "-"),
        "namespace": namespace,
        "labels": {
            _NAME: one.descriptor.name,
            _SLICE: desired.name,
            "underpass/function": one.function.name,
            "underpass/container": one.name.replace(".", "-"),
        },
    }


def _closed(desired: Desired, namespace: str) -> dict[str, Any]:
    """Return the policy that lets nothing in or out by the cluster's own network."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": namespace, "labels": {_SLICE: desired.name}},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }


def _network(name: str, bridge: str, namespace: str) -> dict[str, Any]:
    plugin = {
        "cniVersion": "1.0.0",
        "name": name,
        "type": "bridge",
        "bridge": bridge,
        "capabilities": {"ips": True},
        "ipam": {"type": "static"},
    }
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"config": json.dumps(plugin)},
    }


def _attachments(one: Container, addresses: Addresses, namespace: str) -> str:
    """Return the annotation by which Multus gives a pod its interfaces."""
    found = []
    has_way_out = False
    for name, address in one.networks.items():
        entry: dict[str, Any]
        if name in addresses.attached:
            entry = {"name": addresses.attached[name].network}
            if address is not None:
                entry["ips"] = [address]
        else:
            subnet: IPv4Network = addresses.subnets[name]
            entry = {"name": name, "ips": [f"{address}/{subnet.prefixlen}"]}
            gateway = addresses.gateway_of(name)
            is_own = addresses.forwarders.get(name) == one.function
            if gateway is not None and not is_own and not has_way_out:
                entry["default-route"] = [str(gateway)]
                has_way_out = True
        found.append({"namespace": namespace, **entry})
    return json.dumps(found)


def _workload(
    desired: Desired, one: Container, addresses: Addresses, meta: dict[str, Any]
) -> dict[str, Any]:
    labels = {"underpass/container": meta["name"]}
    pod = {
        "metadata": {
            "labels": meta["labels"],
            "annotations": {
                "k8s.v1.cni.cncf.io/networks": _attachments(one, addresses, meta["namespace"]),
                # When one of these changes, the pod is made anew.
                "underpass/configuration": one.digest,
                "underpass/generation": str(one.function.generation),
            },
        },
        "spec": _pod(desired, one, meta["name"]),
    }
    spec: dict[str, Any] = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    if not one.descriptor.volumes:
        # Two at once would have the same address.
        spec["strategy"] = {"type": "Recreate"}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
    spec["serviceName"] = meta["name"]
    spec["volumeClaimTemplates"] = [
        {
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": _STATE_SIZE}},
            },
        }
        for name in one.descriptor.volumes
    ]
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}


def _pod(desired: Desired, one: Container, name: str) -> dict[str, Any]:
    descriptor = one.descriptor
    mounts = [{"name": n, "mountPath": path} for n, path in descriptor.volumes.items()]
    volumes: list[dict[str, Any]] = []
    for number, path in enumerate(descriptor.tmpfs):
        volumes.append({"name": f"memory-{number}", "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": f"memory-{number}", "mountPath": path.partition(":")[0]})
    if one.files:
        volumes.append({"name": "configuration", "configMap": {"name": name}})
        mounts.append({"name": "configuration", "mountPath": FOLDER})
    if one.certificate is not None:
        secret = {"secretName": f"node-{one.certificate}"}
        volumes.append({"name": "certificates", "secret": secret})
        mounts.append({"name": "certificates", "mountPath": CERTIFICATES})
    needs_root = bool(descriptor.capabilities)
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {_SLICE: desired.name}},
                        "topologyKey": "kubernetes.io/hostname",
                    }
                ]
            }
        },
        "securityContext": {
            "runAsNonRoot": not needs_root,
            "seccompProfile": {"type": "RuntimeDefault"},
            **({} if needs_root else {"runAsUser": _USER, "fsGroup": _USER}),
            **_sysctls(descriptor),
        },
        "containers": [_container(one, mounts)],
        "volumes": volumes,
    }
    if one.resolvers:
        spec["dnsPolicy"] = "None"
        spec["dnsConfig"] = {"nameservers": list(one.resolvers[:_MOST_RESOLVERS])}
    return spec


def _sysctls(descriptor: Descriptor) -> dict[str, Any]:
    if not descriptor.sysctls:
        return {}
    return {"sysctls": [{"name": n, "value": value} for n, value in descriptor.sysctls.items()]}


def _container(one: Container, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    descriptor, health = one.descriptor, one.descriptor.health
    probe = {
        "exec": {"command": list(health.command)},
        "periodSeconds": health.interval_s,
        "timeoutSeconds": health.timeout_s,
        "failureThreshold": health.retries,
    }
    most = {"cpu": str(descriptor.resources.cpus), "memory": f"{descriptor.resources.memory_mb}Mi"}
    return {
        "name": descriptor.name,
        "image": descriptor.image,
        "args": list(descriptor.command),
        "ports": [
            {"name": port.name, "containerPort": port.number, "protocol": port.protocol.upper()}
            for port in descriptor.port
        ],
        "resources": {"limits": most, "requests": most},
        "startupProbe": {**probe, "failureThreshold": health.retries + health.start_s},
        "livenessProbe": probe,
        "readinessProbe": probe,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": list(descriptor.capabilities)},
        },
        "volumeMounts": mounts,
    }
