"""Two tenants' chains over one beam: traffic of each gets through, and neither sees nor starves
the other."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator

import pytest

from tests.images.chains import (
    BEAM_BPS,
    ORIGIN,
    SHARE_BPS,
    TENANTS,
    Chains,
    may_run,
    running,
    slices,
    subnet,
    until,
)
from tests.images.engine import NoEngineError, build_images, engine

pytestmark = [
    pytest.mark.skipif(
        "UNDERPASS_TEST_IMAGES" not in os.environ,
        reason="building the images takes minutes: `make test-images` does it",
    ),
    pytest.mark.timeout(1800),
]
_MANY_BYTES = 200_000_000
_GREEDY_S = 20
# The slices' own networks are in here. Packets to an unused address there leave the machine, and
# in some networks around it a host answers for all addresses.
_INSIDE = "10.213."
_NOBODY = f"{_INSIDE}255.254:3128"
# Downloads through the tenant's proxy, several times at once; prints the bytes received.
_DOWNLOAD = """
import sys, threading, urllib.request
proxy, url, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": f"http://{proxy}:3128"}))
got = []
def run():
    with opener.open(url, timeout=20) as answer:
        size = 0
        while part := answer.read(65536):
            size += len(part)
    got.append(size)
threads = [threading.Thread(target=run) for _ in range(times)]
[one.start() for one in threads]
[one.join() for one in threads]
print(sum(got))
"""
# Prints which addresses accept a connection within two seconds each.
_PROBE = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
        print(place)
    except ConnectionRefusedError:
        print(place)
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chains]:
    reason = may_run()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("slices")
    # The images' user reads the certificates below.
    for one in (folder, *folder.parents[:2]):
        one.chmod(0o755)
    try:
        with engine() as environment:
            build_images(environment)
            with running(folder, environment) as made:
                yield made
    except NoEngineError as error:
        pytest.skip(str(error))


def proxy_of(tenant: str) -> str:
    return f"{subnet('lan', tenant)}.10"


def downloads(chains: Chains, tenant: str) -> None:
    """Wait until a tenant's client downloads a complete file."""
    until(
        lambda: downloaded(chains, tenant, 100_000) == 100_000,
        lambda: (
            f"{tenant}: {chains.state(f'{tenant}-vehicle')}, {chains.state(f'{tenant}-ground')}"
        ),
    )


def downloaded(chains: Chains, tenant: str, size: int, host: str = ORIGIN) -> int:
    """Return the bytes received in one download."""
    url = f"http://{host}:8000/{size}"
    with chains.client(tenant, _DOWNLOAD, proxy_of(tenant), url, "1") as client:
        told, _ = client.communicate(timeout=120)
    return int(told) if told.strip().isdigit() else 0


def test_each_tenants_client_downloads_through_its_own_chain(chains: Chains) -> None:
    for tenant in TENANTS:
        downloads(chains, tenant)


def answering(chains: Chains, tenant: str, places: list[str]) -> set[str]:
    """Return the addresses that answer a client on a tenant's LAN."""
    with chains.client(tenant, _PROBE, *places) as client:
        told, _ = client.communicate(timeout=300)
    return set(told.split())


def test_neither_sees_the_other(chains: Chains) -> None:
    one, other = TENANTS
    own = [f"{proxy_of(one)}:3128"]
    # All of the other tenant's containers, on each of their networks and ports.
    others = []
    for name in (f"{other}-vehicle", f"{other}-ground"):
        found = chains.docker(
            *("ps", "-q", "--filter", f"label=com.docker.compose.project=underpass-slice-{name}")
        ).split()
        for container in found:
            form = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
            for address in chains.docker("inspect", "-f", form, container).split():
                if not address.startswith("10.35."):
                    others += [f"{address}:{port}" for port in (53, 1080, 3128, 4556)]
    assert len(others) > 20
    answered = answering(chains, one, [*own, *others, _NOBODY])
    if _NOBODY in answered:
        # The host has no route to the slices' own networks: such answers come from outside.
        answered = {place for place in answered if not place.startswith(_INSIDE)}
    assert answered == set(own)
    # Nor does the tenant's own chain lead there: its hub does not dial them.
    hub = f"{subnet('dish', other)}.10"
    assert downloaded(chains, one, 1_000, host=hub) == 0
    assert downloaded(chains, one, 1_000) == 1_000


def sent(chains: Chains) -> dict[str, int]:
    """Return the bytes that each tenant's forward link has carried."""
    found = chains.satlink("stats")["terminals"]
    return {name: one["forward"]["bytes_sent"] for name, one in found.items()}


def test_neither_starves_the_other(chains: Chains) -> None:
    """One uses sixteen connections, the other one: each gets its share of the beam."""
    url = f"http://{ORIGIN}:8000/{_MANY_BYTES}"
    clients = [
        chains.client(tenant, _DOWNLOAD, proxy_of(tenant), url, times)
        for tenant, times in zip(TENANTS, ("16", "1"), strict=True)
    ]
    try:
        # Wait until both are at their rates.
        first = sent(chains)
        until(
            lambda: all(sent(chains)[t] - first[t] > SHARE_BPS // 8 for t in TENANTS),
            lambda: (first, sent(chains)),
        )
        before = sent(chains)
        time.sleep(_GREEDY_S)
        after = sent(chains)
    finally:
        for client in clients:
            # The signal is passed on to the container.
            client.terminate()
            client.wait(timeout=60)
    carried = {tenant: after[tenant] - before[tenant] for tenant in TENANTS}
    ratio = carried[TENANTS[1]] / carried[TENANTS[0]]
    assert 0.75 < ratio < 1.33, carried


def test_a_tenant_that_sets_the_whole_beam_for_itself_is_refused(chains: Chains) -> None:
    name = f"{TENANTS[1]}-ground"
    body = slices(TENANTS[1])[name]
    greedy = copy.deepcopy(body)
    greedy["functions"][0]["settings"]["rate_bps"] = BEAM_BPS
    hub = chains.container(name, "hub.1")
    chains.call("PUT", f"/v1/slices/{name}", greedy)
    until(lambda: chains.state(name).startswith("failed"), lambda: chains.state(name))
    assert "has no room" in chains.call("GET", f"/v1/slices/{name}")["detail"]
    # It goes on at its own part.
    assert chains.container(name, "hub.1") == hub
    chains.call("PUT", f"/v1/slices/{name}", body)
    until(lambda: chains.state(name) == "running", lambda: chains.state(name))
    assert chains.container(name, "hub.1") == hub


def test_what_is_healed_is_made_anew_and_goes_on(chains: Chains) -> None:
    tenant, other = TENANTS
    name = f"{tenant}-vehicle"
    before = {t: chains.container(f"{t}-vehicle", "proxy.1") for t in TENANTS}
    chains.call("POST", f"/v1/slices/{name}/functions/proxy/heal")
    until(lambda: chains.state(name) == "running", lambda: chains.state(name))
    assert chains.container(name, "proxy.1") != before[tenant]
    assert chains.container(f"{other}-vehicle", "proxy.1") == before[other]
    downloads(chains, tenant)


def test_a_function_is_scaled(chains: Chains) -> None:
    name = f"{TENANTS[0]}-ground"
    chains.call("PUT", f"/v1/slices/{name}/functions/names/replicas", {"replicas": 3})
    until(lambda: chains.state(name) == "running", lambda: chains.state(name))
    assert chains.container(name, "names.3")
    downloads(chains, TENANTS[0])
