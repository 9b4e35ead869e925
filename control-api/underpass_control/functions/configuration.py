"""The files that configure each function, made from settings that have been checked.

Each file has its program's own format: TOML for nodes, JSON for nftables, and for dnsmasq lines of
addresses and numbers only. No text that a user has set is inserted into another text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from underpass_control.functions.addressing import Addresses, Forwarding
from underpass_control.functions.descriptors import Descriptor
from underpass_control.functions.slices import Desired, FunctionBody
from underpass_control.toml_text import toml_text

# Where a container finds its files.
FOLDER = "/etc/underpass"
CERTIFICATES = "/etc/underpass-pki"
_BUNDLES = 4556
_SOCKS, _HTTP = 1080, 3128
# Round trip between containers of one host.
_NEAR_MS = 1
# Addresses that are not reachable from inside through a NAT unless a setting allows it (RFC 6890).
PRIVATE = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "224.0.0.0/3",
)

Files = dict[str, str]


def files_of(
    desired: Desired,
    one: FunctionBody,
    catalogue: Mapping[str, Descriptor],
    addresses: Addresses,
) -> Files:
    """Return a function's files, by name.

    Raises:
        SliceError: Two functions that need each other share no network of the slice.
    """
    writers: dict[str, Callable[[], Files]] = {
        "gateway": lambda: _node(desired, one, addresses),
        "firewall": lambda: _forwarder(addresses.forwarding(one), _allowed(one.settings)),
        "nat": lambda: _forwarder(
            addresses.forwarding(one), _outward(one.settings), masquerades=True
        ),
        "dns": lambda: _dns(one.settings),
    }
    return writers[catalogue[one.function].configured_by]()


def certificate_of(one: FunctionBody) -> int | None:
    """Return the node whose certificate a function's container needs, if any."""
    node: int | None = one.settings.get("node")
    return None if one.settings.get("plain", True) else node


def _node(desired: Desired, one: FunctionBody, addresses: Addresses) -> Files:
    parts = {"proxy": _proxy, "shaper": _shaper, "terminal": _terminal, "hub": _hub}
    plain = one.settings["plain"]
    document = {
        "log": {"format": "json"},
        # Those that a container without capabilities can have.
        "tcp": {"congestion_control": ["hybla", "bbr", "cubic"]},
        "tls": {"plain": True} if plain else {"pki_dir": CERTIFICATES},
        **parts[one.function](desired, one, addresses),
    }
    return {"node.toml": toml_text(document)}


def _of(desired: Desired, name: str) -> FunctionBody:
    return next(one for one in desired.body.functions if one.name == name)


def _proxy(desired: Desired, one: FunctionBody, addresses: Addresses) -> dict[str, Any]:
    given = one.settings
    shaper = _of(desired, given["shaper"])
    path = {
        "name": "shaper",
        "neighbour": shaper.settings["node"],
        "remote": f"{addresses.shared(one, shaper)[0]}:{_BUNDLES}",
        "send_rate_bps": given["rate_bps"],
        "receive_rate_bps": given["rate_bps"],
        "rtt_ms": _NEAR_MS,
    }
    return {
        "node": {"number": given["node"], "role": "terminal"},
        "path": [path],
        "route": [{"node": given["hub_node"], "via": shaper.settings["node"]}],
        **_edge(given),
    }


def _edge(given: Mapping[str, Any]) -> dict[str, Any]:
    listeners = [("socks", "socks5", _SOCKS), ("http", "http", _HTTP)]
    return {
        "outlet": [{"node": given["hub_node"]}],
        "edge": {
            "client_networks": given["client_networks"],
            "listener": [
                {"name": name, "protocol": protocol, "address": f"0.0.0.0:{port}"}
                for name, protocol, port in listeners
            ],
            "dial": {},
        },
    }


def _hop(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": "satellite",
        "neighbour": given["hub_node"],
        "remote": given["hub"],
        "send_rate_bps": given["send_rate_bps"],
        "receive_rate_bps": given["receive_rate_bps"],
        "rtt_ms": given["rtt_ms"],
    }


def _listener() -> list[dict[str, Any]]:
    return [{"name": "bundles", "listen": f"0.0.0.0:{_BUNDLES}"}]


def _shaper(desired: Desired, one: FunctionBody, _addresses: Addresses) -> dict[str, Any]:
    given = one.settings
    proxies = [
        other.settings
        for other in desired.body.functions
        if other.function == "proxy" and other.settings["shaper"] == one.name
    ]
    return {
        "node": {"number": given["node"], "role": "relay"},
        "listener": _listener(),
        "terminal": [
            {
                "node": proxy["node"],
                "send_rate_bps": proxy["rate_bps"],
                "receive_rate_bps": proxy["rate_bps"],
                "rtt_ms": _NEAR_MS,
            }
            for proxy in proxies
        ],
        "path": [_hop(given)],
    }


def _terminal(_desired: Desired, one: FunctionBody, _addresses: Addresses) -> dict[str, Any]:
    given = one.settings
    return {
        "node": {"number": given["node"], "role": "terminal"},
        "path": [_hop(given)],
        "reports": {"to": given["hub_node"]},
        **_edge(given),
    }


def _hub(_desired: Desired, one: FunctionBody, _addresses: Addresses) -> dict[str, Any]:
    given = one.settings
    terminals = given["terminals"]
    return {
        "node": {"number": given["node"], "role": "hub"},
        "listener": _listener(),
        "terminal": [
            {
                "node": each["node"],
                "send_rate_bps": each["send_rate_bps"],
                "receive_rate_bps": each["receive_rate_bps"],
                "rtt_ms": given["rtt_ms"],
            }
            for each in terminals
        ],
        "route": [
            {"node": node, "via": each["node"]} for each in terminals for node in each["behind"]
        ],
        "beam": {"rate_bps": given["rate_bps"]},
        "edge": {"dial": {"allow_networks": given["allow_networks"]}},
    }


def _match(left: dict[str, Any], right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": left, "right": right}}


def _field(protocol: str, field: str) -> dict[str, Any]:
    return {"payload": {"protocol": protocol, "field": field}}


def _prefix(network: str) -> dict[str, Any]:
    address, _, length = network.partition("/")
    return {"prefix": {"addr": address, "len": int(length)}}


def _allowed(given: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the expressions of rules that let services through."""
    return [
        [
            _match(_field("ip", "daddr"), _prefix(one["to"])),
            _match(_field(one["protocol"], "dport"), one["port"]),
            {"accept": None},
        ]
        for one in given["allow"]
    ]


def _outward(given: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """Return the expressions of rules that let traffic to public addresses through."""
    allowed = [
        [_match(_field("ip", "daddr"), _prefix(one)), {"accept": None}]
        for one in given["to_private"]
    ]
    refused = [[_match(_field("ip", "daddr"), _prefix(one)), {"drop": None}] for one in PRIVATE]
    return [*allowed, *refused, [{"accept": None}]]


def _forwarder(
    ways: Forwarding, rules: list[list[dict[str, Any]]], *, masquerades: bool = False
) -> Files:
    """Return what `forward` of the image underpass-netfilter reads."""
    chain = {"family": "ip", "table": "slice", "chain": "forward"}
    inside = _match(_field("ip", "saddr"), _prefix(str(ways.inner)))
    known = {"ct": {"key": "state"}}
    commands: list[dict[str, Any]] = [
        {"add": {"table": {"family": "ip", "name": "slice"}}},
        {"flush": {"table": {"family": "ip", "name": "slice"}}},
        _base_chain("forward", "filter", "forward", 0, "drop"),
        _rule(chain, [_match(known, ["established", "related"], "in"), {"accept": None}]),
        *(_rule(chain, rule) for rule in _from_inside(inside, ways, rules)),
    ]
    if masquerades:
        commands.append(_base_chain("postrouting", "nat", "postrouting", 100, "accept"))
        where = {**chain, "chain": "postrouting"}
        behind = [str(ways.inner), *map(str, ways.routes)]
        for network in behind:
            source = _match(_field("ip", "saddr"), _prefix(network))
            within = [_match(_field("ip", "daddr"), _prefix(other), "!=") for other in behind]
            commands.append(_rule(where, [source, *within, {"masquerade": None}]))
    lines = [f"inner {ways.inner} {ways.inner_gateway}"]
    if ways.default is not None:
        lines.append(f"default {ways.default}")
    lines += [f"route {subnet} {via}" for subnet, via in ways.routes.items()]
    rules_text = json.dumps({"nftables": commands}, indent=1)
    return {"rules.json": rules_text + "\n", "routes": "\n".join(lines) + "\n"}


def _from_inside(
    inside: dict[str, Any], ways: Forwarding, rules: list[list[dict[str, Any]]]
) -> list[list[dict[str, Any]]]:
    """Return rules restricted to traffic from the networks whose way out this is."""
    sources = [inside]
    sources += [_match(_field("ip", "saddr"), _prefix(str(subnet))) for subnet in ways.routes]
    return [[source, *rule] for source in sources for rule in rules]


def _base_chain(name: str, kind: str, hook: str, priority: int, policy: str) -> dict[str, Any]:
    return {
        "add": {
            "chain": {
                "family": "ip",
                "table": "slice",
                "name": name,
                "type": kind,
                "hook": hook,
                "prio": priority,
                "policy": policy,
            }
        }
    }


def _rule(chain: Mapping[str, Any], expressions: list[dict[str, Any]]) -> dict[str, Any]:
    return {"add": {"rule": {**chain, "expr": expressions}}}


def _dns(given: Mapping[str, Any]) -> Files:
    lines = [
        "keep-in-foreground",
        "log-facility=-",
        "no-resolv",
        "no-hosts",
        "no-poll",
        "bind-interfaces",
        "domain-needed",
        "bogus-priv",
        # Answered locally, so that a health check needs no other server.
        "address=/health.invalid/127.0.0.1",
        f"cache-size={given['cache']}",
        *(f"server={address}" for address in given["upstreams"]),
    ]
    return {"dnsmasq.conf": "\n".join(lines) + "\n"}
