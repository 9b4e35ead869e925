"""Blockages ahead, from a terminal's track and the obstructions it may meet."""

from dama.prediction.announcement import Announcement, AnnouncementError, reconcile
from dama.prediction.blockage import Blockage
from dama.prediction.fix import Fix, FixError, ruling_time
from dama.prediction.obstruction import (
    Obstruction,
    ObstructionError,
    Onward,
    Road,
    road_tunnel,
)
from dama.prediction.predictor import Predictor
from dama.prediction.roadmap import ObstructionMap
from dama.prediction.same import Span
from dama.prediction.track import Track

__all__ = [
    "Announcement",
    "AnnouncementError",
    "Blockage",
    "Fix",
    "FixError",
    "Obstruction",
    "ObstructionError",
    "ObstructionMap",
    "Onward",
    "Predictor",
    "Road",
    "Span",
    "Track",
    "reconcile",
    "road_tunnel",
    "ruling_time",
]
