"""Programs of the test bed."""

from __future__ import annotations

import os
from pathlib import Path

from tests.testbed.process import Process


def test_who_goes_on_is_found_however_long_the_log_is(tmp_path: Path) -> None:
    says = f"INFO underpass::upgrade: another process goes on process={os.getpid()}"
    program = Process(
        "node", ["sh", "-c", f"echo '{says}'; yes 'something else' | head -5000"], log_dir=tmp_path
    )
    program.wait_until(lambda: program.log_path.read_text().count("something") == 5000)
    assert program.follow()
    assert program.pid == os.getpid()
    assert not program.follow()
