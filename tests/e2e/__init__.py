"""End-to-end tests: the built programs on the test bed."""
