"""Terminals in bulk: a CSV file, the changes that it makes, and its errors. Without I/O."""
