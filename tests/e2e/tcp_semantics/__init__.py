"""Random scripts for both ends of a TCP connection, and what TCP lets the ends observe."""
