"""Network functions in containers, chained to slices (`docs/functions.md`)."""
