"""Terminals in bulk."""
