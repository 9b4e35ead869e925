from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.benchmarks.campaign.manifest import Manifest
from tests.benchmarks.readme import README, MarkerError, collect, rewritten
from tests.benchmarks.records import RESULTS, Result, machine, record
from tests.benchmarks.report import MixedError, report, summary, write_report


def manifest(**changed: object) -> Manifest:
    told: dict[str, object] = {
        "id": "now-abc",
        "commit": "abcdef0123",
        "programs": {},
        "machine": machine(),
        "peers": {"kcptun": "1.0", "haproxy": ""},
        "experiments": {"first-byte": {"beside others": False}, "crowd": {"beside others": True}},
        "seed": 1,
        "trial": False,
        "started": "then",
        **changed,
    }
    return Manifest(**told)  # type: ignore[arg-type]


def first_byte(campaign: str | None) -> Result:
    records = [
        record("first-byte.g", "underpass", [1.0, 1.01]),
        record("first-byte.g", "no-proxy-bbr", [2.0]),
    ]
    told = {"underpass": "rate and RTT; warm"}
    return Result("first-byte", records, campaign=campaign, told=told)


def test_a_report_of_one_campaign_names_it_and_what_is_missing(tmp_path: Path) -> None:
    manifest().save(tmp_path)
    first_byte("now-abc").save(tmp_path)
    page = report(tmp_path)
    assert "## Campaign now-abc" in page
    assert "abcdef0123" in page
    assert "not measured yet: crowd" in page
    assert "haproxy (not installed)" in page


def test_each_row_says_what_its_subject_was_told(tmp_path: Path) -> None:
    manifest().save(tmp_path)
    first_byte("now-abc").save(tmp_path)
    page = report(tmp_path)
    assert "| underpass | rate and RTT; warm | 2 |" in page
    assert "| no-proxy-bbr | not noted | 1 |" in page


@pytest.mark.parametrize("of", [None, "another"])
def test_a_result_of_no_or_another_campaign_is_refused(tmp_path: Path, of: str | None) -> None:
    manifest().save(tmp_path)
    first_byte(of).save(tmp_path)
    with pytest.raises(MixedError, match="first-byte"):
        report(tmp_path)
    with pytest.raises(MixedError):
        write_report(tmp_path)
    with pytest.raises(MixedError):
        collect(tmp_path)


def test_samples_of_another_campaign_are_refused(tmp_path: Path) -> None:
    manifest().save(tmp_path)
    result = first_byte("now-abc")
    result.samples["first byte, s"] = [[1.0, 2.0]]
    result.save(tmp_path)
    report(tmp_path)
    samples = tmp_path / "first-byte.samples.json"
    samples.write_text(samples.read_text().replace("now-abc", "another"))
    with pytest.raises(MixedError, match=r"first-byte\.samples"):
        report(tmp_path)


def test_a_campaigns_result_is_refused_where_there_is_no_manifest(tmp_path: Path) -> None:
    first_byte("now-abc").save(tmp_path)
    with pytest.raises(MixedError, match="now-abc"):
        report(tmp_path)


def test_a_result_of_another_machine_or_commit_is_refused(tmp_path: Path) -> None:
    manifest(machine={**machine(), "commit": "0000000"}).save(tmp_path)
    first_byte("now-abc").save(tmp_path)
    with pytest.raises(MixedError, match="0000000"):
        report(tmp_path)


def test_runs_by_themselves_are_called_so(tmp_path: Path) -> None:
    first_byte(None).save(tmp_path)
    assert "## No campaign" in report(tmp_path)


def test_each_volume_has_its_own_campaign_and_page(tmp_path: Path) -> None:
    for volume, campaign in (("data", "now-abc"), ("hub", "then-def")):
        manifest(id=campaign).save(tmp_path / volume)
        first_byte(campaign).save(tmp_path / volume)
    page = write_report(tmp_path).read_text()
    assert "[data](data/REPORT.md)" in page
    assert "[hub](hub/REPORT.md)" in page
    assert "No campaign" not in page
    assert "## Campaign then-def" in (tmp_path / "hub" / "REPORT.md").read_text()


def test_a_plot_that_no_page_shows_any_more_goes(tmp_path: Path) -> None:
    first_byte(None).save(tmp_path)
    (tmp_path / "old.svg").write_text("")
    write_report(tmp_path)
    assert not (tmp_path / "old.svg").exists()


def test_a_table_of_two_origins_is_refused(tmp_path: Path) -> None:
    manifest().save(tmp_path / "data")
    first_byte("now-abc").save(tmp_path / "data")
    records = collect(tmp_path)
    assert "one campaign" in records.origin(["first-byte.g"])
    both = dataclasses.replace(records, origins={**records.origins, "object-1mb.g": {"elsewhere"}})
    with pytest.raises(MixedError, match="elsewhere"):
        both.origin(["first-byte.g", "object-1mb.g"])


def test_a_figure_that_two_volumes_have_is_refused(tmp_path: Path) -> None:
    for volume, campaign in (("data", "now-abc"), ("hub", "then-def")):
        manifest(id=campaign, commit=campaign).save(tmp_path / volume)
        first_byte(campaign).save(tmp_path / volume)
    with pytest.raises(MixedError, match="several origins"):
        collect(tmp_path).origin(["first-byte.g"])


def test_samples_are_kept_beside_the_result(tmp_path: Path) -> None:
    result = first_byte(None)
    result.samples["underpass"] = [[0.1, 0.2]]
    result.save(tmp_path)
    assert "[[0.1, 0.2]]" in (tmp_path / "first-byte.samples.json").read_text()
    assert "first-byte" in report(tmp_path)


def test_the_plots_that_a_page_shows_are_there(tmp_path: Path) -> None:
    result = first_byte(None)
    result.curves["received, MB over s"] = {"underpass": [(0.0, 0.0), (1.0, 1.0)]}
    result.save(tmp_path)
    page = write_report(tmp_path).read_text()
    for path in tmp_path.glob("*.svg"):
        assert f"]({path.name})" in page
    assert page.count("![") == len(list(tmp_path.glob("*.svg"))) == 2


def test_the_readme_has_a_column_for_each_subject_that_was_measured(tmp_path: Path) -> None:
    first_byte(None).save(tmp_path)
    page = "before\n<!-- figures: way-of-the-data -->\nold\n<!-- end of figures -->\nbehind"
    made = rewritten(page, collect(tmp_path))
    assert made.startswith("before\n<!-- figures: way-of-the-data -->\n")
    assert made.endswith("\n<!-- end of figures -->\nbehind")
    assert "| | Underpass | no proxy, BBR |" in made
    assert "| first byte on a new connection | 1.0 RTT | 2.0 RTT |" in made
    assert "old" not in made


@pytest.mark.parametrize(("censored", "cell"), [(1, "9.0 s"), (2, "over 9.0 s")])
def test_the_readme_says_where_a_median_is_the_time_of_an_end(
    tmp_path: Path, censored: int, cell: str
) -> None:
    made = record("object-1mb.g", "underpass", [9.0] * 4, censored_bytes=[0] * censored)
    goodput = record("highway.v", "underpass", [0.0], censored_bytes=[0])
    Result("object-1mb", [made]).save(tmp_path)
    Result("highway", [goodput]).save(tmp_path)
    page = "<!-- figures: way-of-the-data -->\n<!-- end of figures -->"
    shown = rewritten(page, collect(tmp_path))
    assert f"| 1 MB object | {cell} |" in shown
    assert "in turn | 0 % |" in shown


@pytest.mark.parametrize("page", ["no markers", "<!-- figures: odd -->\n<!-- end of figures -->"])
def test_a_page_without_its_markers_is_refused(tmp_path: Path, page: str) -> None:
    with pytest.raises(MarkerError):
        rewritten(page, collect(tmp_path))


def test_all_figures_of_the_readme_say_where_they_come_from() -> None:
    blocks = README.read_text().split("<!-- figures: ")[1:]
    assert blocks
    for block in blocks:
        assert block.splitlines()[1].startswith("Measured "), block.partition(" ")[0]


def test_the_readme_shows_what_the_records_say() -> None:
    page = README.read_text()
    assert rewritten(page, collect()) == page, "make bench ARGS=report"


def test_the_report_shows_what_the_records_say() -> None:
    assert report() == (RESULTS / "REPORT.md").read_text(), "make bench ARGS=report"


def test_a_long_note_is_shortened_and_says_where_all_of_it_is(tmp_path: Path) -> None:
    manifest().save(tmp_path)
    result = first_byte("now-abc")
    result.notes["samples"] = list(range(1000))
    result.notes["seeds"] = [1, 2]
    result.save(tmp_path)
    page = report(tmp_path)
    assert "- seeds: [1, 2]\n" in page
    assert "([all of it](first-byte.json))" in page
    assert max(len(line) for line in page.splitlines()) < 700


def test_a_target_is_judged_as_it_is_shown(tmp_path: Path) -> None:
    name = "road-ahead.krems.map.entry-within"
    made = dataclasses.replace(record(name, "underpass", [94.0]), met=True)
    Result("road-ahead", [made]).save(tmp_path)
    page = report(tmp_path)
    assert "Target: 80 % ± 5." in page
    assert "| 94 | 94 |  | no |" in page


@pytest.mark.parametrize(("theirs", "met"), [(93.9, "yes"), (94.0, "no")])
def test_a_figure_may_ask_to_be_ahead_of_each_other_subject(
    tmp_path: Path, theirs: float, met: str
) -> None:
    medians = {"underpass": 94.0, "kcptun": 50.0, "no-proxy-bbr": theirs, "oracle": 99.0}
    records = [record("leo.goodput", subject, [median]) for subject, median in medians.items()]
    Result("leo", records).save(tmp_path)
    (row,) = (line for line in report(tmp_path).splitlines() if line.startswith("| underpass |"))
    assert row.endswith(f"| {met} |  |")


def test_ours_is_not_its_own_rival_at_its_second_start(tmp_path: Path) -> None:
    medians = {"underpass": 94.0, "underpass-second": 95.0, "kcptun": 50.0}
    records = [record("leo.goodput", subject, [median]) for subject, median in medians.items()]
    Result("leo", records).save(tmp_path)
    (row,) = (line for line in report(tmp_path).splitlines() if line.startswith("| underpass |"))
    assert row.endswith("| yes |  |")


@pytest.mark.parametrize(("theirs", "word"), [(93.9, "met"), (94.1, "MISSED")])
def test_the_summary_judges_as_the_report_does(theirs: float, word: str) -> None:
    name = "road-ahead.krems.map.entry-within"
    records = [
        record("leo.goodput", "underpass", [94.0]),
        record("leo.goodput", "kcptun", [theirs]),
        dataclasses.replace(record(name, "underpass", [94.0]), met=True),
        dataclasses.replace(record("offload.silver", "underpass", [90.0]), unit="ms"),
    ]
    goodput, within = summary([Result("leo", records)]).splitlines()
    assert goodput.startswith(word)
    assert "target better than each other" in goodput
    assert within.startswith("MISSED")
    assert "target 80 % ± 5" in within


def test_what_was_measured_in_another_unit_says_so_and_meets_nothing(tmp_path: Path) -> None:
    made = dataclasses.replace(record("offload.silver", "underpass", [90.0]), unit="ms")
    Result("offload", [made]).save(tmp_path)
    page = report(tmp_path)
    assert "Measured by an earlier definition, in ms." in page
    assert "| median, ms |" in page
    assert "| 90 | 90 |  |  |" in page
