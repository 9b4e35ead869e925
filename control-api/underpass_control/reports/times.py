"""When a report was made, by the control service's clock."""

from __future__ import annotations

from dama.prediction import ruling_time
from underpass_control.instants import is_plausible
from underpass_control.reports.messages import PositionReport, StatusReport


class TimeError(ValueError):
    """No report made now has such a time."""


def of_status(status: StatusReport, age_ms: int, received_ms: int) -> int:
    """Return when a status was made.

    It is taken from the node's clock if that is synchronised or its offset is known. Otherwise it
    is computed from the report's age, to which each node on the way has added.

    Raises:
        TimeError: It cannot be.
    """
    if status.time_ms is not None and status.clock_offset_ms is not None:
        return checked(status.time_ms - status.clock_offset_ms, received_ms)
    if status.time_ms is not None and status.synchronised:
        return checked(status.time_ms, received_ms)
    return checked(received_ms - age_ms, received_ms)


def of_position(position: PositionReport, age_ms: int, received_ms: int) -> tuple[int, bool]:
    """Return when a position was measured, and whether its two clocks differ.

    Raises:
        TimeError: It cannot be.
    """
    gnss_ms, node_ms = position.gnss_time_ms, position.node_time_ms
    if gnss_ms is not None and node_ms is not None:
        time_ms, differ = ruling_time(gnss_ms, node_ms, synchronised=position.synchronised)
        return checked(time_ms, received_ms), differ
    if gnss_ms is not None:
        return checked(gnss_ms, received_ms), False
    if node_ms is not None and position.synchronised:
        return checked(node_ms, received_ms), False
    return checked(received_ms - age_ms, received_ms), False


def checked(time_ms: int, received_ms: int) -> int:
    """Return a time in the past, or a little ahead as clocks are.

    Raises:
        TimeError: It is none.
    """
    if not is_plausible(time_ms, received_ms):
        raise TimeError(f"{time_ms} ms cannot be the time of a report that comes now")
    return time_ms
