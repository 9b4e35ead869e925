"""Programs whose clock shows another time, by Debian's libfaketime."""

from __future__ import annotations

from pathlib import Path

# Debian has it in a folder of the machine's architecture.
_LIBRARIES = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
_LIBRARY = next(_LIBRARIES, None)


def missing() -> str | None:
    """Say what is missing to give a program another clock, None if nothing is."""
    return None if _LIBRARY else "libfaketime is not installed (.ci/setup)"


def clock_that_shows(time: str) -> list[str]:
    """Return the command line that starts the one behind it with a wrong time of day.

    `time` is what libfaketime understands: `@1970-01-01 00:00:10` is what the clock shows at the
    start, `-86400` how many seconds it is ahead. Durations are measured as ever.
    """
    return [
        *("env", f"LD_PRELOAD={_LIBRARY}", f"FAKETIME={time}", "FAKETIME_DONT_FAKE_MONOTONIC=1"),
    ]
