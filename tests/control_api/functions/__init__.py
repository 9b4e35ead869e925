"""Tests of how slices of functions are checked and rendered."""
