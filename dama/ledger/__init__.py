"""The ledger of debts: who owes the beam's others how much, to the bit."""

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
