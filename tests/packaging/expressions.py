"""The names in a PromQL expression: metrics, labels, and the label values that it requires."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SELECTOR = re.compile(r"\b(underpass_\w+|up|ALERTS)\b(?:\s*\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_LISTED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
# label_replace(…, "new", "$1", "source", "(.*)")
_REPLACED = re.compile(r'"(\w+)",\s*"[^"]*",\s*"(\w+)",\s*"[^"]*"\s*\)')
_SUFFIX = re.compile(r"_(?:total|bucket|sum|count|info)$")
# Prometheus' own labels, and that of a histogram's buckets.
ALWAYS = frozenset({"instance", "job", "le"})


@dataclass(frozen=True)
class Selector:
    """A metric and its label matchers: label, operator, value."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


@dataclass
class Named:
    """The names in an expression."""

    selectors: list[Selector]
    # Labels by which series are joined, grouped or distinguished.
    labels: set[str] = field(default_factory=set)
    # Labels that the expression itself makes.
    made: set[str] = field(default_factory=set)


def named(expression: str) -> Named:
    """Parse an expression; the caller must pass one that names a metric."""
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
    """Return the name of the metric family that a series belongs to."""
    return _SUFFIX.sub("", metric)
