"""Origin servers with known content and known faults."""
