"""Planning: which process plans a beam, when it makes a new plan, and how gateways get it."""
