"""Synthetic drives: an invented island's roads, and vehicles that drive there."""
