"""Recorded drives, replayed as if they were driven now."""
