"""What crosses the parts of Underpass: test bed, end-to-end tests, benchmarks."""
