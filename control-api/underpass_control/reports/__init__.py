"""What nodes report, as their gateways post it."""
