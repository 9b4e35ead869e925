"""The ledger of a beam: what was lent, borrowed and repaid, settled against what was sent."""
