"""The figures of routes through contact plans."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.figure import Figure

_CHANGES = {
    "cut": "a contact ends 30 s earlier",
    "restored": "a contact gets 30 s back",
    "booking": "10 MB are booked in all contacts of a route",
    "new": "a contact is added",
}


def _routing() -> Iterator[Figure]:
    """Yield the time of all queries in a small plan, and of single changes in a large one."""
    yield Figure(
        "sabr.queries",
        "4,000 queries in a contact plan of 1,000 contacts, 50 nodes, one core",
        "ms",
    )
    for kind, what in _CHANGES.items():
        which = f"100,000 contacts, 500 nodes: {what}, with all routes found again"
        yield Figure(f"sabr.{kind}-median", f"{which}, the median of 250", "ms")
        yield Figure(f"sabr.{kind}-longest", f"{which}, the longest of 250", "ms", target=50.0)


ROUTING = tuple(_routing())
