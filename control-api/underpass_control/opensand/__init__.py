"""OpenSAND's NCC, which shares out a beam's return link instead of the terminals' nodes."""
