"""Alert rules and boards are valid, by Prometheus' own tool and by their own test cases."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.docs.links import anchors
from tests.packaging import watched
from tests.packaging.expressions import named

_PROMTOOL = shutil.which("promtool")
_needs_promtool = pytest.mark.skipif(
    _PROMTOOL is None, reason="promtool is not installed (Debian package prometheus)"
)
_SEVERITIES = {"critical", "warning"}


def _promtool(*arguments: str | Path) -> None:
    assert _PROMTOOL is not None
    command = [_PROMTOOL, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@_needs_promtool
def test_prometheus_takes_the_rules() -> None:
    _promtool("check", "rules", "--lint=all", "--lint-fatal", watched.RULES)


@_needs_promtool
def test_each_rule_fires_on_what_it_is_for_and_on_nothing_else() -> None:
    _promtool("test", "rules", watched.RULE_TESTS)


def test_no_rule_is_without_a_case() -> None:
    """Each case lists all alerts that fire, so a rule that no case lists is not tested."""
    cases = yaml.safe_load(watched.RULE_TESTS.read_text())["tests"]
    samples = [
        sample["labels"]
        for case in cases
        for test in case["promql_expr_test"]
        for sample in test["exp_samples"]
    ]
    fired = {name for labels in samples for name in re.findall(r'alertname="(\w+)"', labels)}
    assert fired == {rule["alert"] for rule in watched.rules()}


def test_names_are_unique() -> None:
    names = [rule["alert"] for rule in watched.rules()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("rule", watched.rules(), ids=lambda rule: rule["alert"])
def test_an_alert_tells_whom_it_wants_what_it_means_and_where_to_read_on(
    rule: dict[str, dict[str, str]],
) -> None:
    assert rule["labels"]["severity"] in _SEVERITIES
    told = rule["annotations"]
    assert set(told) == {"summary", "description", "runbook"}
    assert len(told["summary"]) < 120
    page, _, anchor = told["runbook"].partition("#")
    assert anchor in anchors((watched.ROOT / page).read_text())


@pytest.mark.parametrize("path", watched.BOARDS, ids=lambda path: path.stem)
def test_a_board_fits_any_installation(path: Path) -> None:
    """It has no installation's id, and each of its panels queries the chosen source."""
    board = watched.board(path)
    assert board["id"] is None
    assert board["schemaVersion"] >= 38
    kinds = {one["name"]: one["type"] for one in board["templating"]["list"]}
    assert kinds == {"datasource": "datasource", "instance": "query"}
    panels = watched.panels(path)
    asked = [one["datasource"] for panel in panels for one in (panel, *panel["targets"])]
    assert len(asked) > len(panels)
    assert all(one == {"type": "prometheus", "uid": "${datasource}"} for one in asked)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("path", watched.BOARDS, ids=lambda path: path.stem)
def test_panels_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in watched.board(path)["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_what_an_expression_names_is_found() -> None:
    found = named(
        'label_replace(underpass_a{x="1", y=~"b|c"} > 0, "made", "$1", "source", "(.*)")'
        " unless on (instance, made) sum by (le) (underpass_b_total)"
    )
    assert [selector.metric for selector in found.selectors] == ["underpass_a", "underpass_b_total"]
    assert found.selectors[0].matchers == (("x", "=", "1"), ("y", "=~", "b|c"))
    assert found.labels == {"instance", "made", "le", "source"}
    assert found.made == {"made"}


def test_the_boards_are_those_of_hub_and_control_service() -> None:
    assert {path.name for path in watched.BOARDS} == {"hub.json", "control-service.json"}
