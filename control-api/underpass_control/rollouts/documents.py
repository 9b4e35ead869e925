"""A terminal's settings after a rollout's change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]

# As a terminal has it without anything from afar.
NOTHING: Document = {"class": [], "path": []}


def laid_over(before: Document, change: Document) -> dict[str, Any]:
    """Return settings with a change laid over them.

    Keys of the change replace those of the entry of the same name; all others stay.
    """
    return {part: _entries(before[part], change[part]) for part in ("class", "path")}


def _entries(before: list[Any], change: list[Any]) -> list[dict[str, Any]]:
    laid = {one["name"]: dict(one) for one in before}
    for one in change:
        laid[one["name"]] = {**laid.get(one["name"], {}), **one}
    return list(laid.values())
