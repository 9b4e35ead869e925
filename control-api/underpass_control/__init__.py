"""The control service: positions in, borrow/repay plans out."""
