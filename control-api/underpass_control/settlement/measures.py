"""The metrics of a beam's settlement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dama.ledger import Entry, Lot
from dama.planner import Link
from underpass_control.metrics import Metrics

_BITS_PER_BYTE = 8
_MS_PER_S = 1000


class Measures:
    """A beam's part of the metrics, while this process settles it."""

    def __init__(self, metrics: Metrics, beam: str) -> None:
        self._metrics = metrics
        self._beam = beam

    def until(self, link: Link, until_ms: int, now_ms: int) -> None:
        """Set how far a link is settled."""
        labels = (self._beam, link.value)
        self._metrics.settled_until.labels(*labels).set(until_ms / _MS_PER_S)
        self._metrics.settlement_lag.labels(*labels).set((now_ms - until_ms) / _MS_PER_S)

    def balances(self, link: Link, lots: Mapping[str, Iterable[Lot]]) -> None:
        """Set the debts, and whether they balance."""
        bits = [lot.bits for account in lots.values() for lot in account]
        labels = (self._beam, link.value)
        owed = sum(lot for lot in bits if lot > 0)
        self._metrics.ledger_owed.labels(*labels).set(owed / _BITS_PER_BYTE)
        self._metrics.ledger_imbalance.labels(*labels).set(sum(bits) / _BITS_PER_BYTE)

    def entered(self, link: Link, entries: Sequence[Entry], presumed: int) -> None:
        """Count a settled period: its entries, and the terminals without the awaited report."""
        self._metrics.settlement_presumed.labels(self._beam, link.value).inc(presumed)
        for entry in entries:
            rule = entry.kind.value if entry.rule is None else entry.rule.value
            self._metrics.ledger_entries.labels(self._beam, link.value, rule).inc()

    def fault(self, link: Link) -> None:
        """Count that the ledger could not be used."""
        self._metrics.ledger_faults.labels(self._beam, link.value).inc()

    def close(self) -> None:
        """Remove the beam's gauges: another process settles it now."""
        states = (
            self._metrics.settled_until,
            self._metrics.settlement_lag,
            self._metrics.ledger_owed,
            self._metrics.ledger_imbalance,
        )
        for gauge in states:
            gauge.remove_by_labels({"beam": self._beam})
