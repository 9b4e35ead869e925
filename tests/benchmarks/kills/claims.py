"""Rules that transfers must keep when a node on their way is killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.testbed.origin.receipts import Ending, Receipt


@dataclass(frozen=True)
class Course:
    """The bytes that an application received of one stream, once all has settled."""

    what: str
    size: int
    received: int
    ending: Ending
    wrong: str | None = None
    # How far the killed node had the stream on its disk, if this application's socket survives.
    in_custody: int = 0

    def violations(self) -> list[str]:
        """Say what does not hold."""
        found = []
        if self.wrong:
            found.append(f"received what was not sent: {self.wrong}")
        if self.ending == "open":
            found.append(f"never ends, after {self.received} of {self.size} bytes")
        if self.ending == "end" and self.received < self.size:
            found.append(f"ends as if whole after {self.received} of {self.size} bytes")
        if self.ending == "whole" and self.received != self.size:
            found.append(f"counts as whole with {self.received} of {self.size} bytes")
        if self.received < self.in_custody:
            found.append(f"received {self.received} bytes where {self.in_custody} were in custody")
        return [f"{self.what}: {each}" for each in found]


@dataclass(frozen=True)
class Answered:
    """The outcome of an upload at its client and at the origin."""

    what: str
    # The answer that the client got.
    whole: bool
    ended: bool
    receipts: Sequence[Receipt]

    def violations(self) -> list[str]:
        """Say what does not hold."""
        found = []
        if not self.ended:
            found.append("never ends at its client")
        if len(self.receipts) > 1:
            found.append(f"came to the origin {len(self.receipts)} times")
        if self.whole and not any(receipt.ending == "whole" for receipt in self.receipts):
            found.append("is answered as whole and is not")
        return [f"{self.what}: {each}" for each in found]


@dataclass(frozen=True)
class Deferred:
    """The outcome of a deferred request."""

    repeatable: bool
    # Whether its client got 202, or else the other status.
    accepted: bool
    refused_with: int | None
    # The last state that the client's node reported, None if it reported none.
    state: str | None
    # What is wrong with the fetched response, if anything.
    response_error: str | None
    receipts: Sequence[Receipt]
    killed: str

    def violations(self) -> list[str]:
        """Say what does not hold."""
        found = [
            f"the origin received what was not sent: {receipt.wrong}"
            for receipt in self.receipts
            if receipt.wrong
        ]
        if not self.repeatable and len(self.receipts) > 1:
            found.append(f"came to the origin {len(self.receipts)} times")
        if self.accepted:
            found += self._lost()
        elif self.refused_with is not None:
            found.append(f"was refused with {self.refused_with}")
        elif self.killed != "terminal":
            found.append("was not answered by a node that lives")
        return [f"the kept request: {each}" for each in found]

    def _lost(self) -> list[str]:
        if self.state == "unknown":
            # Only a kill of the node that sends it to the origin can make the outcome unknown.
            allowed = self.killed == "hub" and not self.repeatable
            return [] if allowed else ["its outcome is unknown"]
        if self.state != "answered":
            return [f"its state is {self.state}"]
        found = []
        if self.response_error:
            found.append(f"its response is not whole: {self.response_error}")
        if not any(receipt.ending == "whole" for receipt in self.receipts):
            found.append("it is answered, and did not come to the origin whole")
        return found
