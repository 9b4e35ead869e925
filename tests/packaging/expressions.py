"""What a PromQL expression names: metrics, labels, and values that labels must have."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SELECTOR = re.compile(r"\b(underpass_\w+|up|ALERTS)\b(?:\s*\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_LISTED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
# label_replace(…, "new", "$1", "source", "(.*)")
_REPLACED = re.compile(r'"(\w+)",\s*"[^"]*",\s*"(\w+)",\s*"[^"]*"\s*\)')
_SUFFIX = re.compile(r"_(?:total|bucket|sum|count|info)$")
# Prometheus' own, and that of a histogram's buckets.
ALWAYS = frozenset({"instance", "job", "le"})


@dataclass(frozen=True)
class Selector:
    """A metric and what its labels are matched against: label, operator, value."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


@dataclass
class Named:
    """What an expression names."""

    selectors: list[Selector]
    # Labels that series are joined, grouped or told apart by.
    labels: set[str] = field(default_factory=set)
    # Labels that the expression makes by itself.
    made: set[str] = field(default_factory=set)


def named(expression: str) -> Named:
    """Read an expression; one that names no metric is an error of the caller."""
    selectors = [
        Selector(metric, tuple((m[1], m[2], m[3]) for m in _MATCHER.finditer(matchers or "")))
        for metric, matchers in _SELECTOR.findall(expression)
    ]
    if not selectors:
        raise ValueError(f"no metric in {expression!r}")
    labels = {
        label.strip()
        for listed in _LISTED.findall(expression)
        for label in listed.split(",")
        if label.strip()
    }
    replaced = _REPLACED.findall(expression)
    labels |= {source for _, source in replaced}
    return Named(selectors, labels, {made for made, _ in replaced})


def family(metric: str) -> str:
    """Return the name under which a series is described."""
    return _SUFFIX.sub("", metric)
