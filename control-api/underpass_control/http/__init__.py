"""The REST API: requests, callers and answers."""
