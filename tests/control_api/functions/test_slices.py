"""Impossible slices: each is refused with its reason, before anything is started."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from underpass_control.functions.descriptors import installed
from underpass_control.functions.slices import SliceBody, SliceError, checked

from tests.control_api.functions.examples import changed, ground, vehicle


def refused(body: dict[str, Any]) -> str:
    """Return why a slice is refused."""
    with pytest.raises((SliceError, ValidationError)) as caught:
        checked(SliceBody.model_validate(body), installed())
    return str(caught.value)


def test_the_examples_are_right_and_defaults_are_filled_in() -> None:
    whole = checked(SliceBody.model_validate(vehicle()), installed())
    assert whole.functions[0].settings["plain"] is False
    checked(SliceBody.model_validate(ground()), installed())


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("name", "../../etc"),
        ("name", "proxy\n"),
        ("name", "a.1"),
        ("name", "$HOME"),
        ("function", "sh -c"),
        ("privileged", True),
        ("image", "evil"),
        ("volumes", ["/:/host"]),
        ("networks", [{"network": "host"}]),
        ("networks", [{"network": "inner"}, {"network": "inner"}]),
        ("networks", [{"network": "inner", "address": "10.0.0.1"}]),
        ("replicas", 2),
        ("replicas", 9),
    ],
)
def test_a_function_brings_in_nothing_of_its_own(member: str, value: object) -> None:
    assert refused(changed(vehicle(), **{member: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("client_networks", ["0.0.0.0/0\nserver=1.2.3.4"]),
        ("client_networks", ["10.0.0.1/8"]),
        ("client_networks", ["10.0.0.0/8"] * 65),
        ("rate_bps", "1000000"),
        ("rate_bps", 1e9),
        ("rate_bps", True),
        ("node", 0),
        ("node", 5),
        ("shaper", "proxy"),
        ("shaper", "nobody"),
        ("pki_dir", "/etc"),
    ],
)
def test_a_setting_is_of_its_kind_to_the_last_character(name: str, value: object) -> None:
    why = refused(changed(vehicle(), settings={name: value}))
    assert why.startswith("shaper: another function is node 5" if value == 5 else "proxy: ")


def test_a_proxy_needs_a_shaper_that_it_can_reach() -> None:
    body = vehicle()
    del body["functions"][1]
    assert "needs a shaper" in refused(body)
    body = vehicle()
    body["functions"][1]["networks"] = [{"network": "hop"}]
    assert "no network in common" in refused(body)


def test_a_network_has_one_way_out() -> None:
    body = ground()
    body["functions"].append({**body["functions"][2], "name": "second"})
    assert "another way out" in refused(body)
    body = ground()
    body["functions"][3]["networks"].reverse()
    assert "one of the slice's own" in refused(body)


def test_a_slice_is_bounded() -> None:
    body = ground()
    body["functions"] += [{**body["functions"][1], "name": f"n{n}"} for n in range(16)]
    assert "16" in refused(body)
    body = ground()
    body["networks"] += [{"name": f"n{n}"} for n in range(8)]
    assert "7" in refused(body)
