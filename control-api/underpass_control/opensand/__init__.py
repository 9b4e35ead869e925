"""OpenSAND's NCC as what shares out the return link of a beam, instead of the terminals' nodes."""
