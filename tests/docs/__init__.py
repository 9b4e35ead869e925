"""What the documentation points to."""
