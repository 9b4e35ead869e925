"""Access: tenants, users with their sessions, tokens, and the log of changes."""
