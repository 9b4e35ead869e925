"""Rollouts: one change of settings, in stages."""
