"""The map's ground as vector tiles."""
