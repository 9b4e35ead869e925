"""Rollouts: one change of settings for many terminals, in stages."""
