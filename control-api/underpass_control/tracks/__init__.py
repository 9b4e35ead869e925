"""Recorded tracks, from the files that receivers and navigation programs write."""
