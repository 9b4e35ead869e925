"""Courses of links over time: made from formulas and seeds, kept as files that satlink follows."""
