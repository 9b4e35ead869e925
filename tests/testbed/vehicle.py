"""A vehicle at a terminal: its receiver at a real gpsd, and blockages on covered road."""

from __future__ import annotations

import shutil
import time

from tests.drives.drive import Drive
from tests.drives.nmea_log import nmea_log
from tests.testbed.process import Process
from tests.testbed.topology import Terminal, Testbed

# The part of a node's configuration by which it reads the vehicle's position.
POSITIONS: dict[str, object] = {"source": "gpsd"}
_GPSD_PORT = 2947
# gpsfake sends a sentence at a time, and an epoch has two.
_SENTENCES_PER_S = 2
# By then gpsd is running, so that fixes come at their own times.
_START_MS = 2_500


def missing() -> str | None:
    """Return why no vehicle can drive here, None if one can."""
    absent = [name for name in ("gpsd", "gpsfake") if not shutil.which(name)]
    return f"Debian's packages gpsd and gpsd-clients are missing: {absent}" if absent else None


class Vehicle:
    """Drives once: gpsd's `gpsfake` replays a log whose times are shifted to begin now."""

    def __init__(self, testbed: Testbed, terminal: Terminal, drive: Drive) -> None:
        self._testbed = testbed
        self._terminal = terminal
        self._drive = drive
        self._shift_ms = time.time_ns() // 1_000_000 + _START_MS - drive.fixes[0].time_ms
        log = testbed.dir / f"{terminal.name}.nmea"
        # Written as bytes: NMEA's CR LF must not change to a text file's line ends.
        log.write_bytes("".join(nmea_log(drive.fixes, shift_ms=self._shift_ms)).encode())
        program = ["gpsfake", "-1", "-n", "-q", "-P", str(_GPSD_PORT)]
        program += ["-c", str(1 / _SENTENCES_PER_S), str(log)]
        self.process: Process = testbed.start(f"gpsfake-{terminal.name}", program, terminal.node)
        self._block()

    @property
    def blockages_ms(self) -> list[tuple[int, int]]:
        """Return entry and exit of each covered stretch, ms since the Unix epoch."""
        return [
            (stay.entry_ms + self._shift_ms, stay.exit_ms + self._shift_ms)
            for stay in self._drive.covered
        ]

    @property
    def end_ms(self) -> int:
        """Return the time of the last fix, in ms since the Unix epoch."""
        return self._drive.fixes[-1].time_ms + self._shift_ms

    def _block(self) -> None:
        to_monotonic_s = time.monotonic() - time.time()
        self._testbed.satlink.schedule(
            self._terminal.name,
            [
                (entry / 1000 + to_monotonic_s, (leave - entry) / 1000)
                for entry, leave in self.blockages_ms
            ],
        )
