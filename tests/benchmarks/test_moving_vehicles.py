from __future__ import annotations

from tests.benchmarks.experiments.moving_vehicles import p99_s, plans


def metrics(*counts: tuple[str, float]) -> str:
    name = "underpass_control_report_to_plan_seconds_bucket"
    return "".join(f'{name}{{le="{le}"}} {count}\n' for le, count in counts)


BEFORE = metrics(("0.1", 10.0), ("0.5", 10.0), ("+Inf", 10.0))


def test_a_percentile_is_of_what_was_counted_meanwhile() -> None:
    quick = metrics(("0.1", 109.0), ("0.5", 110.0), ("+Inf", 110.0))
    slow = metrics(("0.1", 108.0), ("0.5", 110.0), ("+Inf", 110.0))
    assert p99_s(BEFORE, quick, "report_to_plan") == 0.1
    assert p99_s(BEFORE, slow, "report_to_plan") == 0.5
    assert p99_s("", quick, "report_to_plan") == 0.1


def test_no_plan_at_all_and_one_beyond_every_bucket_count_as_a_run() -> None:
    beyond = metrics(("0.1", 10.0), ("0.5", 10.0), ("+Inf", 11.0))
    assert p99_s(BEFORE, BEFORE, "report_to_plan") == 25.0
    assert p99_s(BEFORE, beyond, "report_to_plan") == 25.0
    assert p99_s("", "", "report_to_plan") == 25.0


def test_plans_are_those_of_the_forward_link() -> None:
    name = "underpass_control_plans_total"
    lines = [("forward", "blockages", 3), ("forward", "moved", 2), ("return", "moved", 9)]
    text = "".join(
        f'{name}{{link="{link}",reason="{why}"}} {count}.0\n' for link, why, count in lines
    )
    assert plans(text) == 5.0
