"""Random scripts for both ends of a TCP connection, and the observations that TCP allows."""
