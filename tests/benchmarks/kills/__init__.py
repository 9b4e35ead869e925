"""Nodes that are killed amid transfers: the load, and the rules that it must keep."""
