"""The error for impossible inputs."""


class SkyError(ValueError):
    """An impossible satellite, antenna, obstacle, lane or height grid; the message says why."""
