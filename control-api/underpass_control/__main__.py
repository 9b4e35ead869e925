"""`python -m underpass_control` is `underpass-control`."""

from underpass_control.cli import app

app()
