"""The template of enrolment.md: what is done later to the nodes that are enrolled with it works."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from underpass_control.enrolment.configuration import check, filled

_PAGE = Path(__file__).parents[2] / "docs" / "enrolment.md"
_TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_nodes_of_the_template_report_and_can_be_set_from_afar() -> None:
    [template] = [one for one in _TOML.findall(_PAGE.read_text()) if "${node}" in one]
    configuration = filled(template, {"node": "10", "port": "1080"})
    check(configuration, 10)
    found = tomllib.loads(configuration)
    assert found["provider"]["may_set"] == ["class", "path"]
    assert found["reports"]["to"] == found["path"][0]["neighbour"]
