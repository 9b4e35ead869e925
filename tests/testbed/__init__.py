"""Client, terminal, satellite hop, hub and origin in network namespaces of one machine."""
