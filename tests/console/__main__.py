"""`python -m tests.console`: the service with a fleet that reports, to look at, until Ctrl-C."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.console.fleet import Fleet
from tests.console.service import ControlService, prepare
from tests.drives.island import ISLAND_OSM


def main() -> None:
    """Run until Ctrl-C."""
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        service = ControlService(Path(folder), prepare(Path(folder), maps=(ISLAND_OSM,)))
        fleet = Fleet(service)
        fleet.start()
        print(f"{service.url}#token={service.operator}", flush=True)
        try:
            while True:
                time.sleep(1)
        finally:
            fleet.close()
            service.close()


if __name__ == "__main__":
    main()
