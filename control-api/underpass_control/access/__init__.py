"""Who may do what: tenants, users with their sessions, tokens, and the log of changes."""
