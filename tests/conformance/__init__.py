"""Underpass beside other implementations of the Bundle Protocol."""
