"""Recorded tracks, as logs of receivers and navigation programs hold them."""
