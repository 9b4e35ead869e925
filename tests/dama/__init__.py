"""Tests of the mathematics of capacity on demand."""
