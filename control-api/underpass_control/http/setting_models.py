"""The API's models of terminals' and gateways' settings.

The bounds are those of the nodes' configuration, which has the last word: what a node refuses all
the same is reported back.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from underpass_control.http.models import Model, NodeNumber
from underpass_control.storage.settings import MOST_ENTRIES, MOST_TERMINALS
from underpass_control.validation import ONE_LINE, worded

_MOST_NAMES = 16
_INTERFACE = worded(r"^[A-Za-z0-9_.-]{1,15}$", "have 1 to 15 of A-Z, a-z, 0-9, _, . and -")

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=ONE_LINE)]
Part = Annotated[float, Field(ge=0.001, le=1, allow_inf_nan=False)]
LinkRate = Annotated[int, Field(ge=8_000, le=100_000_000_000)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Pause = Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)]


def _remote(text: str) -> str:
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ValueError("must be an address with a port, as 192.0.2.1:4556 or [2001:db8::1]:4556")
    bracketed = host.startswith("[") and host.endswith("]")
    address = ipaddress.ip_address(_address(host[1:-1] if bracketed else host))
    if bracketed != (address.version == 6):
        raise ValueError("an IPv6 address has brackets before its port, an IPv4 address none")
    return text


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError as error:
        raise ValueError("must have an IPv4 or IPv6 address, such as 192.0.2.1") from error
    return text


Remote = Annotated[str, Field(max_length=64), AfterValidator(_remote)]
Address = Annotated[str, Field(max_length=64), AfterValidator(_address)]


class MigrationRule(Model):
    """When a class moves to another path (`docs/paths.md`, *Moving between paths*)."""

    by_rule: bool | None = None
    after_s: Annotated[float, Field(ge=0.5, le=3_600, allow_inf_nan=False)] | None = None
    full_part: Part | None = None
    delay_factor: Annotated[float, Field(ge=1, le=1_000, allow_inf_nan=False)] | None = None
    loss: Part | None = None
    rate_part: Part | None = None
    back_after_s: Pause | None = None
    room_part: Part | None = None


class ClassSettings(Model):
    """What is set of a class that the terminal has."""

    name: Name
    weight: Annotated[int, Field(ge=1, le=2**32 - 1)] | None = None
    policy: Literal["bonded", "failover", "pinned", "duplicated", "migrate", "minfct"] | None = None
    paths: Annotated[list[Name], Field(max_length=_MOST_NAMES)] | None = None
    migrate: MigrationRule | None = None
    estimate: Literal["open-session", "new-connection"] | None = None
    metered: Literal["never", "last", "freely"] | None = None
    coded: Literal["never", "tail", "always"] | None = None


class Meter(Model):
    """The budget of a path whose bytes are paid for."""

    budget_bytes: Annotated[int, Field(ge=1, le=10**15)] | None = None
    period: Literal["day", "month", "once"] | None = None
    first_day: Annotated[int, Field(ge=1, le=28)] | None = None
    beyond: Annotated[list[Name], Field(max_length=_MOST_NAMES)] | None = None


class OnDemand(Model):
    """When a path is brought up and released; programs are the node's own to name."""

    within_s: Seconds | None = None
    others_down_s: Seconds | None = None
    idle_s: Pause | None = None
    least_up_s: Pause | None = None
    least_down_s: Pause | None = None
    connect_s: Pause | None = None
    neighbour_asks: bool | None = None


class _Hop(Model):
    """What is set of any path, at whichever end."""

    send_rate_bps: LinkRate | None = None
    rate_hint_bps: LinkRate | None = None
    receive_rate_bps: LinkRate | None = None
    rtt_ms: Annotated[int, Field(ge=1, le=60_000)] | None = None
    mtu_bytes: Annotated[int, Field(ge=576, le=65_535)] | None = None
    direction: Literal["both", "receive"] | None = None
    meter: Meter | None = None


class PathSettings(_Hop):
    """What is set of a path that the node has, or a further path to one of its neighbours."""

    name: Name
    on_demand: OnDemand | None = None
    # For a further path.
    neighbour: NodeNumber | None = None
    remote: Remote | None = None
    convergence_layer: Literal["tcpcl", "quic"] | None = None
    local: Address | None = None
    interface: Annotated[str, Field(pattern=_INTERFACE)] | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> PathSettings:
        if (self.neighbour is None) != (self.remote is None):
            raise ValueError("a further path has both neighbour and remote")
        return self


class SettingsBody(Model):
    """What is set of a terminal; what is left out is as its own configuration has it."""

    classes: Annotated[list[ClassSettings], Field(default_factory=list, max_length=MOST_ENTRIES)]
    paths: Annotated[list[PathSettings], Field(default_factory=list, max_length=MOST_ENTRIES)]

    def document(self) -> dict[str, Any]:
        """Return the settings under the names that a node's configuration has."""
        return {
            "class": [one.model_dump(exclude_none=True) for one in self.classes],
            "path": [one.model_dump(exclude_none=True) for one in self.paths],
        }

    @model_validator(mode="after")
    def _are_distinct(self) -> SettingsBody:
        for entries in (self.classes, self.paths):
            names = [entry.name for entry in entries]
            if len(set(names)) < len(names):
                raise ValueError("a name is there twice")
        return self


class AskedPath(Model):
    """When a gateway has a terminal bring a path up."""

    # Its name at the terminal.
    path: Name
    within_s: Seconds | None = None
    others_down_s: Seconds | None = None


class TerminalPathSettings(_Hop):
    """What is set at a gateway of a terminal's path by one of its listeners."""

    listener: Name
    on_demand: AskedPath | None = None


class AcceptedTerminal(_Hop):
    """What is set at a gateway of a terminal, of its own path, and of its other paths."""

    node: NodeNumber
    weight: Annotated[int, Field(ge=1, le=2**32 - 1)] | None = None
    on_demand: AskedPath | None = None
    path: Annotated[list[TerminalPathSettings], Field(max_length=_MOST_NAMES)] | None = None

    @model_validator(mode="after")
    def _has_distinct_paths(self) -> AcceptedTerminal:
        listeners = [path.listener for path in self.path or []]
        if len(set(listeners)) < len(listeners):
            raise ValueError("a listener is there twice")
        return self


class GatewaySettingsBody(SettingsBody):
    """What is set of a gateway itself; what is left out is as its own configuration has it."""

    terminals: Annotated[
        list[AcceptedTerminal], Field(default_factory=list, max_length=MOST_TERMINALS)
    ]

    def document(self) -> dict[str, Any]:
        """Return the settings under the names that a node's configuration has."""
        document = super().document()
        if self.terminals:
            document["terminal"] = [one.model_dump(exclude_none=True) for one in self.terminals]
        return document

    @model_validator(mode="after")
    def _has_distinct_terminals(self) -> GatewaySettingsBody:
        nodes = [terminal.node for terminal in self.terminals]
        if len(set(nodes)) < len(nodes):
            raise ValueError("a terminal is there twice")
        return self


class SettingsReport(Model):
    """What the node has said of settings last."""

    version: int
    # If false, the former settings are in force.
    applied: bool
    state: Literal["trial", "confirmed", "rolled-back", "refused"]
    reason: str | None = None
    received: AwareDatetime


class _Standing(Model):
    """What has become of settings."""

    version: int
    set: AwareDatetime
    # waiting: the node has not reported this version. trial: it is in force, until a terminal has
    # heard its hub, or a gateway its terminals. rolled-back: they were not heard, and the former
    # settings are in force.
    state: Literal["waiting", "trial", "applied", "rolled-back", "refused"]
    reported: SettingsReport | None = None


class Settings(SettingsBody, _Standing):
    """What is set of a terminal, and what has become of it."""

    terminal: NodeNumber


class GatewaySettings(GatewaySettingsBody, _Standing):
    """What is set of a gateway itself, and what has become of it."""

    gateway: NodeNumber


class SettingsChange(Model):
    """A key that would be changed, as `class.bulk.weight`; a value that is missing is not set."""

    key: str
    before: Any = None
    after: Any = None


class PreviewQuery(Model):
    """How a document would be set."""

    # Laid over what is set now, as a rollout does it; otherwise it replaces that.
    merged: bool = False


class SettingsPreview(Model):
    """What a document would change of what is set now."""

    # Of what is set now; missing: nothing is.
    version: int | None = None
    changes: list[SettingsChange]
    # The document's paths that the terminal has not reported: unless it has them all the same, it
    # refuses the document. Missing: there are none, or it has not reported which paths it has.
    unreported_paths: list[str] | None = None


class SettingsList(Model):
    """A page of terminals' settings."""

    settings: list[Settings]
    next: str | None = None
