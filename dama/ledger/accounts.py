"""The accounts: balances that always sum to zero, in lots that record their age."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from dama.ledger.entries import Entry, Kind, LedgerError, Lot, Posting, Rule
from dama.rounding import apportion

# A debt that arises within this time after a lot is added to that lot, to keep accounts short.
_LOT_MS = 60_000


class Ledger:
    """The accounts of a beam's terminals on one link.

    Borrowing and its repayment are matched first in, first out: an amount posted against a balance
    closes its oldest lots. The ledger holds balances only. The caller keeps its entries, and can
    rebuild the ledger by applying them again.

    Args:
        lots: to continue from; empty for a new ledger.

    Raises:
        LedgerError: if the lots do not sum to zero, or an account has lots of both signs.
    """

    def __init__(self, lots: Mapping[str, Iterable[Lot]] | None = None) -> None:
        self._lots = {name: deque(account) for name, account in (lots or {}).items()}
        for name, account in self._lots.items():
            if len({lot.bits > 0 for lot in account}) > 1 or not all(lot.bits for lot in account):
                raise LedgerError(f"account {name} has lots of both signs, or of nothing")
        if sum(self.balances().values()):
            raise LedgerError("the balances do not sum to zero")

    def balances(self) -> dict[str, int]:
        """Return every balance that is not zero, in bits: above 0 it is owed, below 0 it owes."""
        sums = {name: self.balance(name) for name in self._lots}
        return {name: bits for name, bits in sums.items() if bits}

    def balance(self, account: str) -> int:
        """Return a balance; 0 for an account that nothing was posted to."""
        return sum(lot.bits for lot in self._lots.get(account, ()))

    def lots(self) -> dict[str, tuple[Lot, ...]]:
        """Return all lots, oldest first, to store and to continue from."""
        return {name: tuple(account) for name, account in self._lots.items() if account}

    def apply(self, entry: Entry) -> dict[str, tuple[Lot, ...]]:
        """Post an entry.

        Returns:
            By account, the lots, or parts of them, that it closed.
        """
        return {
            posting.account: closed
            for posting in entry.postings
            if (closed := self._post(posting, entry.to_ms))
        }

    def forgive(self, account: str, rule: Rule, at_ms: int, bits: int | None = None) -> Entry:
        """Return the entry, to be applied, that forgives an account what it owes or is owed.

        All accounts of the opposite balance bear the other side, in proportion.

        Args:
            account: whose balance goes to zero, or towards it.
            rule: the rule by which it is forgiven.
            at_ms: UTC, ms since the Unix epoch.
            bits: how much is forgiven, above 0; None for all.

        Raises:
            LedgerError: if its balance is less than that.
        """
        return self.forgive_all(
            {account: abs(self.balance(account)) if bits is None else bits}, rule, at_ms
        )

    def forgive_all(self, amounts: Mapping[str, int], rule: Rule, at_ms: int) -> Entry:
        """Return the entry, to be applied, that forgives several accounts at once.

        Amounts forgiven to debtors and to creditors offset each other. All accounts of the opposite
        balance bear the rest of the larger sum, in proportion to their remaining balances. One
        entry per account would instead need postings to all accounts of the other side: millions
        in a beam of thousands.

        Args:
            amounts: by account, how much its balance goes towards zero.
            rule: the rule by which it is forgiven.
            at_ms: UTC, ms since the Unix epoch.

        Raises:
            LedgerError: if a balance is less than that.
        """
        balances = self.balances()
        for account, bits in amounts.items():
            balance = balances.get(account, 0)
            if not 0 <= bits <= abs(balance):
                raise LedgerError(f"{bits} bits of a balance of {balance} cannot be forgiven")
        sides = [
            (sign, {name: amounts.get(name, 0) for name, of in balances.items() if of * sign < 0})
            for sign in (1, -1)
        ]
        most = max(sum(side.values()) for _, side in sides)
        postings = []
        for sign, side in sides:
            left = [abs(balances[name]) - bits for name, bits in side.items()]
            shares = apportion(left, most - sum(side.values()))
            postings += [
                Posting(name, sign * (bits + share))
                for (name, bits), share in zip(side.items(), shares, strict=True)
            ]
        return Entry(at_ms, at_ms, Kind.FORGIVEN, tuple(one for one in postings if one.bits), rule)

    def expire(self, before_ms: int, at_ms: int) -> list[Entry]:
        """Forgive all that arose before a time, and apply that; return the entries."""
        old = {
            account: sum(abs(lot.bits) for lot in lots if lot.since_ms < before_ms)
            for account, lots in self._lots.items()
        }
        if not any(old.values()):
            return []
        entry = self.forgive_all(old, Rule.EXPIRED, at_ms)
        self.apply(entry)
        return [entry]

    def _post(self, posting: Posting, at_ms: int) -> tuple[Lot, ...]:
        account = self._lots.setdefault(posting.account, deque())
        left = posting.bits
        closed = []
        while left and account and (account[0].bits > 0) != (left > 0):
            oldest = account.popleft()
            if abs(oldest.bits) > abs(left):
                closed.append(Lot(oldest.since_ms, -left))
                account.appendleft(Lot(oldest.since_ms, oldest.bits + left))
                left = 0
            else:
                closed.append(oldest)
                left += oldest.bits
        if left:
            if account and at_ms - account[-1].since_ms < _LOT_MS:
                last = account.pop()
                account.append(Lot(last.since_ms, last.bits + left))
            else:
                account.append(Lot(at_ms, left))
        if not account:
            del self._lots[posting.account]
        return tuple(closed)
