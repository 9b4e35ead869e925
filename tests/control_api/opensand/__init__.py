"""OpenSAND's NCC, as it reads what it is told."""
