"""Clients that time what they get and check every byte of it."""
