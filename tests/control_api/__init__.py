"""Tests of the control service."""
