"""The map's ground as vector tiles (Mapbox Vector Tile 2.1), from OpenStreetMap extracts."""
