"""Claims of the control service."""
