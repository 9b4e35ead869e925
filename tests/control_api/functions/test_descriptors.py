"""Descriptors: those that come with the program, and those that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from underpass_control.functions.descriptors import (
    DescriptorError,
    installed,
    load,
    settings_model,
)

FOLDER = Path(__file__).parents[3] / "docker" / "functions"


def test_each_function_has_one() -> None:
    wanted = {"proxy", "shaper", "terminal", "hub", "firewall", "nat", "dns"}
    assert set(installed()) == wanted


def test_the_schema_of_settings_names_bounds_and_what_is_required() -> None:
    schema = settings_model(installed()["shaper"]).model_json_schema()
    assert schema["properties"]["rtt_ms"]["maximum"] == 60_000
    assert schema["additionalProperties"] is False
    assert "node" in schema["required"]
    assert "rtt_ms" not in schema["required"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('capabilities = ["NET_ADMIN"]', 'capabilities = ["SYS_ADMIN"]'),
        ("forwards = true", "privileged = true"),
        ('tmpfs = ["/run"]', 'tmpfs = ["/run,/etc:/etc"]'),
        ('tmpfs = ["/run"]', 'volumes = { "../x" = "/run" }'),
        ('"net.ipv4.ip_forward"', '"kernel.core_pattern"'),
        ("cpus = 0.5", "cpus = 0"),
        ("memory_mb = 64", "memory_mb = 1_000_000"),
        ("default = []", 'default = ["10.0.0.0"]\nx = 1'),
        ("default = []", 'default = ["ten"]'),
        ('kind = "networks"', 'kind = "text"'),
        ('name = "nat"', 'name = "not"'),
        ("forwards = true", 'forwards = true\nneeds = ["router"]'),
        ("forwards = true", "forwards = true\nforwards = true"),
    ],
)
def test_a_descriptor_that_is_not_as_it_should_be_is_refused(
    tmp_path: Path, before: str, after: str
) -> None:
    text = (FOLDER / "nat.toml").read_text()
    assert before in text
    (tmp_path / "nat.toml").write_text(text.replace(before, after, 1))
    with pytest.raises(DescriptorError, match="nat"):
        load(tmp_path)
