"""Nodes that are killed amid transfers: the load, and what must hold of it."""
