"""Alerts: faults of a fleet by an operator's rules, since when, and the targets notified."""
