"""A terminal tells itself which blockages it will meet."""
