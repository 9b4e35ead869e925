"""Where the service keeps what it knows: SQLite, or PostgreSQL."""
