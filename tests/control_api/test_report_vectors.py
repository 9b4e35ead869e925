"""The messages of `docs/vectors/control/` that gateways post; nodes' tests use them too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from underpass_control.access.secrets import digest_of
from underpass_control.reports import messages
from underpass_control.reports.messages import EntryError, ReportPost
from underpass_control.reports.sorting import RefusedError, Sorted, Sorter
from underpass_control.storage.attachments import Attachment, mac_of

VECTORS = Path(__file__).parents[2] / "docs" / "vectors" / "control"
POST = json.loads((VECTORS / "reports-post.json").read_text())


def vectors(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


def named(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case["why"] for case in cases])


def sort(document: object, received_ms: int = POST["received_ms"]) -> Sorted:
    made = Sorted()
    sorter = Sorter(POST["gateway"], received_ms, dict.fromkeys(POST["terminals"], Attachment()))
    sorter.sort(messages.entry(document), made)
    return made


def read(post: object) -> ReportPost:
    return ReportPost.model_validate_json(json.dumps(post), strict=True)


@named(POST["taken"])
def test_what_is_taken_is_taken_as_of_its_time(case: dict[str, Any]) -> None:
    made = sort(case)
    whole = (*made.states, *made.positions, *made.blockages, *made.announcements)
    assert len(whole) + len(made.acknowledgements) == (1 if case["report"].get("links", 1) else 0)
    times = [one.time_ms for kind in (made.states, made.counts, made.positions) for one in kind]
    assert set(times) <= {case.get("time_ms")}
    measured = [one.capacity_bps for one in made.states] + [one.capacity_bps for one in made.counts]
    assert set(measured) <= {case.get("capacity_bps")}
    assert made.implausible == ("capacity_bps" in case and case["capacity_bps"] is None)
    assert [one.version for one in made.nodes] == ([case["version"]] if "version" in case else [])
    assert {one.time_ms for one in made.nodes} <= {case.get("time_ms")}
    for position in made.positions:
        assert position.clocks_differ == case["clocks_differ"]


@named(POST["refused"])
def test_what_is_refused_is_refused_with_a_reason(case: dict[str, Any]) -> None:
    with pytest.raises((EntryError, RefusedError), match=r"\w+"):
        sort({name: value for name, value in case.items() if name != "why"})


@named(POST["invalid"])
def test_what_is_no_post_is_none(case: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        read(case["post"])


def test_all_that_is_taken_is_a_post() -> None:
    entries = [
        {name: case[name] for name in ("node", "age_ms", "report")} for case in POST["taken"]
    ]
    post = {"version": 1, "node": 1, "sent_ms": POST["received_ms"] - 20, "reports": entries}
    assert len(read(post).reports) == len(entries)


def test_a_post_is_answered_as_the_gateways_expect() -> None:
    vector = vectors("post.json")
    answer = vector["answer"]
    refused = []
    for index, document in enumerate(read(vector["post"]).reports):
        try:
            sort(document, answer["received_ms"])
        except EntryError as error:
            refused.append({"index": index, "detail": str(error)})
    assert refused == answer["refused"]


@pytest.mark.parametrize("kind", ["status", "position", "announcement", "blockage", "plan", "bare"])
def test_what_nodes_send_is_read_with_all_its_members(kind: str) -> None:
    for report in vectors(f"report-{kind}.json")["reports"]:
        entry = messages.entry({"node": 10, "age_ms": 0, "report": report})
        assert entry.report.model_dump(exclude_unset=True) == report


def test_what_hubs_refuse_is_refused_here() -> None:
    for case in vectors("report-refused.json"):
        reports = case["message"].get("reports") if isinstance(case["message"], dict) else None
        for report in reports if isinstance(reports, list) else []:
            with pytest.raises(EntryError):
                messages.entry({"node": 10, "age_ms": 0, "report": report})


def test_a_terminal_proves_its_gateway_with_its_token() -> None:
    case = vectors("gateway-proof.json")
    proof = messages.entry(case["entry"]).report.proof  # type: ignore[union-attr]
    assert proof is not None
    digest = digest_of(case["token"])
    made = mac_of(digest, case["entry"]["node"], proof.gateway, proof.time_ms)
    assert made.hex() == proof.mac
