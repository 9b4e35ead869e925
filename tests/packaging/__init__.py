"""What the packages and images say of a node's rights."""
