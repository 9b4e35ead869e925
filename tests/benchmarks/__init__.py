"""Benchmarks: what Underpass reaches, beside its peers on the same emulated hop."""
