"""Blockages ahead, from a terminal's track and the obstructions it may meet."""
