"""A campaign: all experiments on one commit and one machine, with one manifest."""
