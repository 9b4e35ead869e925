"""The slices that the documentation shows, and where they run."""

from __future__ import annotations

import copy
import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from underpass_control.functions.addressing import Attachment
from underpass_control.functions.containers import Site
from underpass_control.functions.descriptors import installed
from underpass_control.functions.slices import Desired, SliceBody, checked

_FOLDER = Path(__file__).parents[3] / "docker" / "slices"
NORTH = "north"
SITE = Site(
    {
        name: Attachment(name, f"net-{name}", frozenset({NORTH}), gateway)
        for name, gateway in (
            ("lan", None),
            ("modem", None),
            ("dish", None),
            ("internet", IPv4Address("172.18.0.1")),
        )
    }
)


def vehicle() -> dict[str, Any]:
    """Return the slice of a vehicle: proxy and shaper."""
    return _read("vehicle")


def ground() -> dict[str, Any]:
    """Return the slice of a ground station: hub, DNS, firewall and NAT."""
    return _read("ground")


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text())
    return found


def changed(body: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Return a body whose first function has other members; `settings` are joined."""
    body = copy.deepcopy(body)
    first = body["functions"][0]
    settings = {**first["settings"], **members.pop("settings", {})}
    first.update(members, settings=settings)
    return body


def desired(body: dict[str, Any], name: str = "east", number: int = 7) -> Desired:
    """Return a slice of the tenant north, checked."""
    whole = checked(SliceBody.model_validate(body), installed())
    return Desired(name=name, tenant=NORTH, number=number, revision=1, body=whole)
