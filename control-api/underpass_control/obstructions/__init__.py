"""Obstructions from files: OpenStreetMap extracts and GeoJSON."""
