"""The packages' alert rules and boards."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "packaging" / "prometheus"
RULES = PROMETHEUS / "alerts.yml"
RULE_TESTS = PROMETHEUS / "alerts.test.yml"
BOARDS = sorted((ROOT / "packaging" / "grafana").glob("*.json"))
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_VARIABLE = re.compile(r"label_values\((.*), (\w+)\)")


@dataclass(frozen=True)
class Query:
    """A panel's query, and the labels in its legend."""

    board: str
    panel: str
    expression: str
    legend: frozenset[str]


def rules() -> list[dict[str, Any]]:
    """Return all alert rules."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def board(path: Path) -> dict[str, Any]:
    """Read a board."""
    read: dict[str, Any] = json.loads(path.read_text())
    return read


def panels(path: Path) -> list[dict[str, Any]]:
    """Return a board's panels that have queries."""
    return [panel for panel in board(path)["panels"] if panel["type"] != "row"]


def queries(path: Path) -> list[Query]:
    """Return the queries of all panels of a board."""
    return [
        Query(
            path.stem,
            panel["title"],
            target["expr"],
            frozenset(_LEGEND.findall(target["legendFormat"])),
        )
        for panel in panels(path)
        for target in panel["targets"]
    ]


def variable(path: Path) -> tuple[str, str]:
    """Return the source of a board's choice of instances: a selector, and the label."""
    [found] = [one for one in board(path)["templating"]["list"] if one["type"] == "query"]
    matched = _VARIABLE.fullmatch(found["query"]["query"])
    assert matched, found["query"]
    return matched[1], matched[2]
