"""Alerts: what is wrong with a fleet by an operator's rules, since when, and who is told."""
