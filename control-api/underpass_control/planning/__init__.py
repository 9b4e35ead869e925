"""Planning: who plans a beam, when there is a new plan, and how it reaches the gateways."""
