"""Tests of the control service: its API and its database."""
