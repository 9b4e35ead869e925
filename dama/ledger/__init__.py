"""The ledger of debts: how much each terminal owes the others of its beam, to the bit."""

from dama.ledger.accounts import Ledger
from dama.ledger.entries import Entry, Kind, LedgerError, Lot, Posting, Rule
from dama.ledger.settlement import Usage, settle

__all__ = [
    "Entry",
    "Kind",
    "Ledger",
    "LedgerError",
    "Lot",
    "Posting",
    "Rule",
    "Usage",
    "settle",
]
