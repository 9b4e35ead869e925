"""The replay of recorded drives."""
