"""Programs of the test bed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("line", "killed"), [("another process goes on process=1234567890", True), ("", False)]
)
def test_an_upgraded_process_that_ends_in_order_behind_a_killed_one_counts_as_killed(
    tmp_path: Path, line: str, killed: bool
) -> None:
    program = Process(
        "node", ["sh", "-c", f"echo 'INFO underpass::upgrade: {line}'"], log_dir=tmp_path
    )
    while program.running():
        time.sleep(0.01)
    assert not program.follow()
    assert program.killed() is killed
