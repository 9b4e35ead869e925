"""Slices of functions, as they are checked and rendered."""
