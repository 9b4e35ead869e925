"""The reports of nodes, as their gateways post them."""
