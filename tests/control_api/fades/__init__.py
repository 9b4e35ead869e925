"""Efficiencies that follow what nodes measure."""
