"""The kinds of settings that a descriptor may declare, each checked to the last character.

A tenant's settings become part of configuration files and of names: no kind takes free text.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from underpass_control.validation import worded

_MOST_LISTED = 64
# Also a label of Kubernetes (RFC 1123), and part of the names of projects, networks and folders.
NAME = worded(
    r"^[a-z]([a-z0-9-]{0,29}[a-z0-9])?$",
    "have 1 to 31 of a-z, 0-9 and -, begin with one of a-z, and not end with -",
)
MOST_NODE = 2**32 - 2

FunctionName = Annotated[str, Field(pattern=NAME)]
Node = Annotated[int, Field(ge=1, le=MOST_NODE)]
Rate = Annotated[int, Field(ge=8_000, le=100_000_000_000)]
PortNumber = Annotated[int, Field(ge=1, le=65_535)]


class Setting(BaseModel):
    """A value of several members."""

    model_config = ConfigDict(extra="forbid")


def _address(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except ValueError as error:
        raise ValueError("must be an IPv4 address, such as 192.0.2.1") from error


def _network(text: str) -> str:
    try:
        return str(IPv4Network(text))
    except ValueError as error:
        raise ValueError("must be an IPv4 network, such as 192.0.2.0/24") from error


def _endpoint(text: str) -> str:
    host, separator, port = text.rpartition(":")
    if not (separator and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ValueError("must be an IPv4 address with a port, such as 192.0.2.1:4556")
    return f"{_address(host)}:{int(port)}"


Address = Annotated[str, Field(max_length=15), AfterValidator(_address)]
Network = Annotated[str, Field(max_length=18), AfterValidator(_network)]
Endpoint = Annotated[str, Field(max_length=21), AfterValidator(_endpoint)]


class Service(Setting):
    """What a firewall lets through: a protocol and port, of all addresses or of a network."""

    protocol: Literal["tcp", "udp"]
    port: PortNumber
    to: Network = "0.0.0.0/0"


class Neighbour(Setting):
    """Who may dial a hub, at which rates, and the nodes that are behind it."""

    node: Node
    send_rate_bps: Rate
    receive_rate_bps: Rate
    behind: Annotated[list[Node], Field(default_factory=list, max_length=_MOST_LISTED)]


Kind = Literal[
    "node",
    "rate",
    "integer",
    "switch",
    "endpoint",
    "function",
    "functions",
    "addresses",
    "networks",
    "services",
    "terminals",
]


_LISTED = Field(max_length=_MOST_LISTED)

# All but integers, whose bounds the descriptor has.
TYPES: dict[str, Any] = {
    "node": Node,
    "rate": Rate,
    "switch": bool,
    "endpoint": Endpoint,
    "function": FunctionName,
    "functions": Annotated[list[FunctionName], _LISTED],
    "addresses": Annotated[list[Address], _LISTED],
    "networks": Annotated[list[Network], _LISTED],
    "services": Annotated[list[Service], _LISTED],
    "terminals": Annotated[list[Neighbour], _LISTED],
}
