from __future__ import annotations

from tests.benchmarks.experiments.minfct import _note
from tests.benchmarks.experiments.users import PATIENCE_S, Content, UsersRun
from tests.benchmarks.records import Result


def run_of(*contents: Content) -> UsersRun:
    nothing = {"satellite": 0, "terrestrial": 0}
    return UsersRun(list(contents), nothing, dict.fromkeys(nothing, 0.0))


def test_contents_count_from_when_the_estimates_have_settled() -> None:
    run = run_of(Content(10, 9.0, 2.0, True), Content(10, 11.0, 3.0, True))
    assert run.times() == [3.0]


def test_a_subject_that_brings_nobody_a_content_is_recorded_with_the_users_patience() -> None:
    result = Result("minfct")
    _note(result, "split-mptcp", 30, [run_of(Content(10, 1.0, PATIENCE_S, False))])
    values = {made.id: made.values for made in result.records}
    assert values == {"minfct.mean": [1000 * PATIENCE_S], "minfct.broken": [1.0]}
