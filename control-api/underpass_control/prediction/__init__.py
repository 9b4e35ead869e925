"""The blockages ahead of a beam's terminals, and the lessons learned from those that came."""

from underpass_control.prediction.lessons import Lesson
from underpass_control.prediction.predictions import Predictions

__all__ = ["Lesson", "Predictions"]
