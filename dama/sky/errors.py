"""What is wrong with what was asked."""


class SkyError(ValueError):
    """A satellite, antenna, obstacle, lane or height grid that cannot be; the message says why."""
