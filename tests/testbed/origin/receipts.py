"""An origin's receipts of requests with a name: every byte checked, every end noted."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from typing import Literal

from tests.testbed.content import ContentError, Verifier

# Closer arrivals are merged.
_ARRIVALS_STEP_S = 0.002
# open: it may continue; whole: all announced bytes have come; end, reset: it broke off.
Ending = Literal["open", "whole", "end", "reset"]


@dataclass
class Receipt:
    """One arrival of a request whose body is a seed's content."""

    announced: int
    bytes: int = 0
    wrong: str | None = None
    ending: Ending = "open"
    # If requested: pairs of `time.monotonic()` and the bytes until then.
    arrivals: list[tuple[float, int]] | None = None


@dataclass
class Receipts:
    """All receipts, by the names in the requests' queries."""

    by_name: dict[str, list[Receipt]] = field(default_factory=dict)

    def begin(
        self, name: str, seed: int, announced: int, *, with_arrivals: bool = False
    ) -> Receiving:
        """Note that a request has arrived."""
        receipt = Receipt(announced, arrivals=[] if with_arrivals else None)
        self.by_name.setdefault(name, []).append(receipt)
        return Receiving(receipt, Verifier(seed))

    def document(self, name: str) -> list[dict[str, object]]:
        """Return a name's receipts in order."""
        return [dataclasses.asdict(receipt) for receipt in self.by_name.get(name, [])]


@dataclass
class Receiving:
    """A body that arrives."""

    receipt: Receipt
    _verifier: Verifier

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        self.receipt.bytes += len(data)
        arrivals, now = self.receipt.arrivals, time.monotonic()
        if arrivals is not None and (not arrivals or now - arrivals[-1][0] >= _ARRIVALS_STEP_S):
            arrivals.append((now, self.receipt.bytes))
        if self.receipt.wrong is None:
            try:
                self._verifier.feed(data)
            except ContentError as error:
                self.receipt.wrong = str(error)

    def ends(self, ending: Ending) -> None:
        """Note how it ended; only the first call counts."""
        if self.receipt.ending == "open":
            self.receipt.ending = ending
