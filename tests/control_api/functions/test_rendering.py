"""The input of engines: a Docker Compose project, Kubernetes manifests, and files.

The programs themselves say whether the files are right: `underpass check-config`, `nft -c`, and
`kubernetes-validate` with the schemas of a cluster's API. No cluster runs here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from underpass_control.functions.compose import Project, project
from underpass_control.functions.containers import Site
from underpass_control.functions.descriptors import installed
from underpass_control.functions.kubernetes import manifests
from underpass_control.functions.slices import SliceError

from tests.control_api.functions.examples import SITE, changed, desired, ground, vehicle
from tests.testbed import programs

_KUBERNETES = "1.31"
_OWN = {"NetworkAttachmentDefinition"}


def rendered(body: dict[str, Any], name: str = "east", number: int = 7) -> Project:
    return project(desired(body, name, number), installed(), SITE, "/pki")


@pytest.mark.parametrize("body", [vehicle(), ground()], ids=["vehicle", "ground"])
def test_no_container_has_more_than_its_descriptor_gives(body: dict[str, Any]) -> None:
    made = rendered(body)
    assert set(made.document) == {"services", "networks", "volumes"}
    for name, service in made.document["services"].items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        forwards = name in ("firewall.1", "nat.1")
        assert service.get("cap_add") == (["NET_ADMIN"] if forwards else None)
        assert not {"privileged", "network_mode", "pid", "ipc", "devices", "ports"} & set(service)
        assert service["cpus"] > 0
        assert service["mem_limit"] == service["memswap_limit"]
        assert service["pids_limit"] > 0
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            node = f"/pki/north/nodes/{10 if name == 'proxy.1' else 5 if name == 'shaper.1' else 1}"
            assert source in (f"./{name}", f"{name}.state", node)


def test_a_slices_networks_are_its_own_and_lead_out_by_its_forwarder_alone() -> None:
    networks = rendered(ground()).document["networks"]
    assert networks["internet"] == {"external": True, "name": "net-internet"}
    for name in ("exit", "between"):
        assert networks[name]["internal"] is False
        assert networks[name]["driver_opts"]["com.docker.network.bridge.inhibit_ipv4"] == "true"
    assert rendered(vehicle()).document["networks"]["inner"]["internal"] is True


def test_two_slices_share_no_name_and_no_address() -> None:
    # Names that would become equal if parts were joined by a hyphen.
    one, other = rendered(ground(), "a-b", 0), rendered(ground(), "a", 1)
    assert one.name != other.name

    def own(made: Project, member: str) -> set[str]:
        return {
            network["name"] if member == "name" else network["ipam"]["config"][0]["subnet"]
            for network in made.document["networks"].values()
            if "external" not in network
        }

    assert not own(one, "name") & own(other, "name")
    subnets = [IPv4Network(text) for made in (one, other) for text in own(made, "subnet")]
    assert not any(a.overlaps(b) for n, a in enumerate(subnets) for b in subnets[:n])


def test_the_way_out_goes_through_firewall_and_nat_and_back() -> None:
    made = rendered(ground())
    files, services = made.files, made.document["services"]
    firewall = services["firewall.1"]["networks"]["between"]["ipv4_address"]
    assert files["firewall.1"]["routes"].splitlines() == [
        "inner 10.213.7.0/27 10.213.7.1",
        "default 10.213.7.33",
    ]
    assert files["nat.1"]["routes"].splitlines() == [
        "inner 10.213.7.32/27 10.213.7.33",
        "default 172.18.0.1",
        f"route 10.213.7.0/27 {firewall}",
    ]
    names = [services[f"names.{n}"]["networks"]["exit"]["ipv4_address"] for n in (1, 2)]
    assert services["hub.1"]["dns"] == names
    assert len({*names, firewall}) == 3


def test_another_tenants_attachment_is_as_good_as_none() -> None:
    other = desired(vehicle()).model_copy(update={"tenant": "south"})
    with pytest.raises(SliceError, match="no attachment lan for south"):
        project(other, installed(), SITE)
    with pytest.raises(SliceError, match="no attachment"):
        project(desired(vehicle()), installed(), Site({}))


def test_what_heals_or_configures_makes_one_container_anew() -> None:
    before = rendered(vehicle()).document["services"]
    healed = rendered(changed(vehicle(), generation=2)).document["services"]
    assert before["proxy.1"] != healed["proxy.1"]
    assert before["shaper.1"] == healed["shaper.1"]
    body = changed(vehicle(), settings={"client_networks": ["192.168.9.0/24"]})
    configured = rendered(body).document["services"]
    assert before["proxy.1"]["labels"] != configured["proxy.1"]["labels"]
    assert before["shaper.1"] == configured["shaper.1"]


@pytest.mark.skipif(bool(programs.missing("underpass")), reason="underpass is not built")
def test_each_node_takes_its_configuration(tmp_path: Path) -> None:
    underpass = programs.built("underpass")
    for body in (vehicle(), ground(), _whole_terminal()):
        for function in body["functions"]:
            if "node" in function["settings"]:
                function["settings"]["plain"] = True
        for name, files in rendered(body).files.items():
            if "node.toml" not in files:
                continue
            path = tmp_path / f"{name}.toml"
            path.write_text(files["node.toml"])
            command = [underpass, "check-config", "--config", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


def _whole_terminal() -> dict[str, Any]:
    body = vehicle()
    settings = body["functions"][1]["settings"] | {"node": 10, "client_networks": ["10.9.0.0/16"]}
    networks = [{"network": "clients"}, {"network": "hop"}]
    body["functions"] = [
        {"name": "terminal", "function": "terminal", "networks": networks, "settings": settings}
    ]
    return body


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="no docker-compose is here")
@pytest.mark.parametrize("body", [vehicle(), ground()], ids=["vehicle", "ground"])
def test_compose_takes_the_project_and_replaces_nothing_in_it(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    made = rendered(body)
    made.document["services"]["probe"] = {"image": "x", "command": ["$${HOME}"]}
    path = tmp_path / "compose.json"
    path.write_text(json.dumps(made.document))
    command = ["docker-compose", "--project-name", made.name, "--file", str(path), "config"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout)["services"]
    assert found["probe"]["command"] == ["$${HOME}"]
    assert set(found) == set(made.document["services"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have nft check rules")
@pytest.mark.parametrize("name", ["firewall.1", "nat.1"])
def test_nft_takes_the_rules(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rules.json"
    path.write_text(rendered(ground()).files[name]["rules.json"])
    command = ["unshare", "--net", "nft", "-j", "-c", "-f", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("body", [vehicle(), ground()], ids=["vehicle", "ground"])
def test_kubernetes_takes_the_manifests(body: dict[str, Any]) -> None:
    made = manifests(desired(body), installed(), SITE)
    for one in made:
        if one["kind"] not in _OWN:
            kubernetes_validate.validate(one, _KUBERNETES, strict=True)
    kinds = [one["kind"] for one in made]
    containers = len(rendered(body).document["services"])
    assert kinds.count("PodDisruptionBudget") == containers
    assert kinds.count("Deployment") + kinds.count("StatefulSet") == containers
    policies = [one for one in made if one["kind"] == "NetworkPolicy"]
    assert policies[0]["spec"]["podSelector"] == {}


def test_a_pod_has_the_addresses_and_the_rights_that_a_container_has() -> None:
    services = rendered(ground()).document["services"]
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in manifests(desired(ground()), installed(), SITE)
        if one["kind"] in ("Deployment", "StatefulSet")
    }
    for name, service in services.items():
        pod = pods[name.replace(".", "-")]
        text = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"]
        given = {ip.partition("/")[0] for one in json.loads(text) for ip in one.get("ips", [])}
        addresses = {n["ipv4_address"] for n in service["networks"].values() if n}
        assert given == addresses
        container = pod["spec"]["containers"][0]
        added = container["securityContext"]["capabilities"]["add"]
        assert added == service.get("cap_add", [])
        assert container["livenessProbe"] == container["readinessProbe"]


def test_a_pod_asks_as_many_resolvers_as_it_may_have() -> None:
    body = ground()
    names = next(one for one in body["functions"] if one["function"] == "dns")
    names["replicas"] = 4
    servers = rendered(body).document["services"]["hub.1"]["dns"]
    assert len(servers) == 4
    [hub] = [
        one
        for one in manifests(desired(body), installed(), SITE)
        if one["kind"] in ("Deployment", "StatefulSet") and one["metadata"]["name"] == "hub-1"
    ]
    kubernetes_validate.validate(hub, _KUBERNETES, strict=True)
    assert hub["spec"]["template"]["spec"]["dnsConfig"]["nameservers"] == servers[:3]


def test_a_broken_manifest_is_found() -> None:
    """The validator on which the other tests rely does find errors."""
    one = next(
        one
        for one in manifests(desired(vehicle()), installed(), SITE)
        if one["kind"] == "PodDisruptionBudget"
    )
    one["spec"]["minimumAvailable"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one, _KUBERNETES, strict=True)
