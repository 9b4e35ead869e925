"""Origin servers of known content and known faults."""
