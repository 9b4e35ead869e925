"""Programs whose clock shows another time, by Debian's libfaketime."""

from __future__ import annotations

from pathlib import Path

# Debian installs the library in a folder for the machine's architecture.
_LIBRARIES = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
_LIBRARY = next(_LIBRARIES, None)


def missing() -> str | None:
    """Say what is missing to change a program's clock, None if nothing is."""
    return None if _LIBRARY else "libfaketime is not installed (.ci/setup)"


def clock_that_shows(time: str) -> list[str]:
    """Return a prefix for a command line that gives the program a wrong time of day.

    `time` is in libfaketime's format: `@1970-01-01 00:00:10` is the time that the clock shows at
    the start, `-86400` the seconds by which it is ahead. Measured durations stay correct.
    """
    return [
        *("env", f"LD_PRELOAD={_LIBRARY}", f"FAKETIME={time}", "FAKETIME_DONT_FAKE_MONOTONIC=1"),
    ]
