"""Clients of the local API, without a node."""
