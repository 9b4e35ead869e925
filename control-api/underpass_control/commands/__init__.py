"""The verbs of the command line that talk to a running service or node."""
