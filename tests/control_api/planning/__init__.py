"""When a beam is planned anew, and with what, in virtual time."""
