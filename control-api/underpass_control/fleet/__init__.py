"""Terminals in bulk: a CSV file, what it would change, and what is wrong with it. Without I/O."""
