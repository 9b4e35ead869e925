from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from underpass_control.replay.recording import read_recording

from tests.benchmarks.experiments.closed_loop import (
    Driven,
    Passage,
    Told,
    compared,
    owed_bits,
    stretch_of,
)
from tests.benchmarks.figures import FIGURES
from tests.drives import field
from tests.testbed.following import Event

PASSAGE = Passage("field:2", 100_000, 104_000)


def said(came_s: float, number: int = 1, **changed: Any) -> Event:
    one = {"id": number, "obstruction": "field:2", "state": "predicted", "confidence": 0.9}
    return Event("blockages", {"blockages": [{**one, **changed}]}, came_s)


def foreseen(*events: Event) -> bool:
    told = Told()
    for event in events:
        told.take(event)
    return told.foresees(PASSAGE)


def test_a_tunnel_is_foreseen_if_it_is_predicted_ten_seconds_before() -> None:
    assert foreseen(said(90.0))
    assert not foreseen(said(90.1))
    assert not foreseen(said(60.0, confidence=0.4))
    assert not foreseen(said(60.0, obstruction="field:3"))
    assert not foreseen(said(60.0, obstruction=None))
    assert not foreseen()


def test_what_was_told_last_in_time_counts() -> None:
    assert not foreseen(said(60.0), said(70.0, state="withdrawn"))
    assert not foreseen(said(60.0), said(70.0, confidence=0.3))
    assert foreseen(said(60.0), said(95.0, state="withdrawn"))
    assert foreseen(said(60.0), said(70.0, number=2), said(70.0, state="withdrawn"))


def test_the_ledger_of_the_forward_link_is_summed() -> None:
    told = Told()
    for link, bits in (("forward", 10), ("return", 500), ("forward", 7)):
        told.take(Event("ledger", {"link": link, "moved_bits": bits}, 1.0))
    assert told.moved_bits == 17
    assert owed_bits({10: -30, 11: 10, 12: 20}) == 30
    assert owed_bits({10: 0, 11: 0}) == 0


def test_each_drive_is_compared_with_the_one_by_known_times() -> None:
    predicted = [Driven(98, 297, 0, 50, 2, 2), Driven(96, 300, 7, 50, 1, 2)]
    known = [Driven(100, 300, 0, 50, 0, 2), Driven(96, 300, 0, 50, 0, 2)]
    found = compared(predicted, known)
    assert found["vehicle"] == [pytest.approx(98.0), pytest.approx(100.0)]
    assert found["others"] == [pytest.approx(99.0), pytest.approx(100.0)]
    assert (found["foreseen"], found["debts"]) == ([100.0, 50.0], [0.0, 7.0])
    assert not FIGURES["closed-loop.foreseen"].meets(100.0, 100.0, [100.0, 50.0, 100.0])
    assert not FIGURES["closed-loop.debts"].meets(0.0, 0.0, [0.0, 7.0, 0.0])


@pytest.mark.skipif(bool(field.missing_drive()), reason=field.missing_drive() or "")
def test_the_stretch_has_two_tunnels_and_its_log_the_same_fixes(tmp_path: Path) -> None:
    stretch = stretch_of(field.recorded())
    assert stretch.length_s == pytest.approx(604.0, abs=2.0)
    assert [one.exit_ms - one.entry_ms for one in stretch.passages] == [4_000, 35_000]
    log = tmp_path / "drive.nmea"
    log.write_text(field.log_between(stretch.fixes[0].time_ms, stretch.fixes[-1].time_ms))
    found = read_recording(log)
    assert found.rejected == 0
    assert [fix.place for fix in found.fixes] == [fix.place for fix in stretch.fixes]
    assert [fix.time_ms for fix in found.fixes] == [fix.time_ms for fix in stretch.fixes]
    # The place of the first fix at the terminal tells how far the drive is.
    assert len({fix.place for fix in stretch.fixes[:120]}) == 120
