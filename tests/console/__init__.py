"""The console in a real browser, on a real service with a fleet that reports to it."""
