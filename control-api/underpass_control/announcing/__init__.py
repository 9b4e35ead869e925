"""On board a vehicle: the terminal announces its own blockages ahead."""
