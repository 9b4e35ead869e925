"""Which requests and plans of the service are traced; no collector delays the service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from underpass_control.roles import Role
from underpass_control.tracing import Allowance, Traces, TracesSettings

from tests.testbed.collector import Collector, Span

_TRACE, _SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
_HEADERS = {"traceparent": f"00-{_TRACE}-{_SPAN}-01"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector(port=0) as running:
        yield running


def _traces(collector: Collector, ratio: float = 0.0, most_per_s: float = 100.0) -> Traces:
    url = f"http://127.0.0.1:{collector.port}"
    return Traces(TracesSettings(url, ratio=ratio, most_per_s=most_per_s))


def _by_name(spans: list[Span]) -> dict[str, Span]:
    assert len({span.name for span in spans}) == len(spans)
    return {span.name: span for span in spans}


def test_a_plan_and_its_stream_are_in_the_trace_of_the_reports_that_it_follows_from(
    collector: Collector,
) -> None:
    traces = _traces(collector)
    with traces.request("POST", "/v1/reports", Role.GATEWAY, _HEADERS) as request:
        assert request is not None
        request.reports_of({11, 12})
        request.answered(200)
    assert traces.causes({13}) == []
    causes = traces.causes({10, 11})
    assert len(causes) == 1
    assert traces.causes({11}) == [], "a report is the cause of one plan"
    with traces.plan("ku-1", "forward", "demand", causes) as plan:
        plan.stored(7)
    with traces.push("ku-1", "forward", 7, 1):
        pass
    with traces.push("ku-1", "forward", 6, 1), traces.push("ku-1", "return", 7, 1):
        pass
    asyncio.run(traces.close())
    spans = _by_name(collector.spans())
    assert set(spans) == {"POST /v1/reports", "plan", "push"}
    assert {span.trace for span in spans.values()} == {_TRACE}
    assert spans["POST /v1/reports"].parent == _SPAN
    assert spans["plan"].parent == spans["POST /v1/reports"].id
    assert spans["push"].parent == spans["plan"].id
    assert spans["push"].attributes["underpass.plan"] == 7
    assert spans["POST /v1/reports"].attributes["http.response.status_code"] == 200
    assert {span.service for span in spans.values()} == {"underpass-control"}


def test_a_plan_that_follows_from_several_posts_is_linked_with_them(collector: Collector) -> None:
    traces = _traces(collector)
    for terminal in (11, 12):
        with traces.request("POST", "/v1/reports", Role.GATEWAY, _HEADERS) as request:
            assert request is not None
            request.reports_of({terminal})
    with traces.plan("ku-1", "forward", "demand", traces.causes({11, 12})):
        pass
    asyncio.run(traces.close())
    first, second, plan = sorted(collector.spans(), key=lambda span: span.start_ns)
    assert (plan.name, plan.parent, plan.links) == ("plan", second.id, (first.id,))


@pytest.mark.parametrize("role", [Role.VIEWER, Role.TERMINAL, None])
def test_only_a_trusted_callers_word_for_a_trace_counts(
    collector: Collector, role: Role | None
) -> None:
    traces = _traces(collector)
    with traces.request("GET", "/v1/beams", role, _HEADERS) as request:
        assert request is None
    whole = _traces(collector, ratio=1.0)
    with whole.request("GET", "/v1/beams", role, _HEADERS) as request:
        assert request is not None
    asyncio.run(whole.close())
    [span] = collector.spans()
    assert span.trace != _TRACE
    assert span.parent == ""


@pytest.mark.parametrize(
    "header",
    ["", "00", f"00-{_TRACE}-{_SPAN}-00", f"ff-{_TRACE}-{_SPAN}-01", f"00-{'0' * 32}-{_SPAN}-01"],
)
def test_a_header_that_is_none_or_not_sampled_traces_nothing(
    collector: Collector, header: str
) -> None:
    traces = _traces(collector)
    headers = {"traceparent": header}
    with traces.request("POST", "/v1/reports", Role.GATEWAY, headers) as request:
        assert request is None


def test_no_caller_has_more_traced_than_the_limit(collector: Collector) -> None:
    traces = _traces(collector, most_per_s=5.0)
    traced = 0
    for _ in range(1_000):
        with traces.request("POST", "/v1/reports", Role.GATEWAY, _HEADERS) as request:
            traced += request is not None
    assert 5 <= traced <= 10


def test_an_allowance_fills_with_time_up_to_a_second_of_it() -> None:
    now = 0.0
    allowance = Allowance(2.0, lambda: now)
    assert [allowance.admits() for _ in range(3)] == [True, True, False]
    now = 0.5
    assert [allowance.admits() for _ in range(2)] == [True, False]
    now = 100.0
    assert [allowance.admits() for _ in range(3)] == [True, True, False]


def test_without_a_collector_nothing_is_traced() -> None:
    traces = Traces(None)
    with traces.request("POST", "/v1/reports", Role.GATEWAY, _HEADERS) as request:
        assert request is None
    assert traces.causes({11}) == []
    with traces.plan("ku-1", "forward", "demand", []) as plan:
        plan.stored(1)
    with traces.push("ku-1", "forward", 1, 1):
        pass
    asyncio.run(traces.close())


def test_the_error_of_a_request_is_named_without_its_text(collector: Collector) -> None:
    traces = _traces(collector)
    with (
        pytest.raises(ValueError, match="secret"),
        traces.request("POST", "/v1/reports", Role.GATEWAY, _HEADERS),
    ):
        raise ValueError("secret")
    asyncio.run(traces.close())
    [span] = collector.spans()
    assert span.error == "ValueError"


@pytest.mark.parametrize("answer", [500, None])
def test_a_collector_that_fails_or_hangs_holds_nothing_up(answer: int | None) -> None:
    with Collector(port=0, answer=answer) as collector:
        traces = _traces(collector, ratio=1.0, most_per_s=1e6)
        began = time.monotonic()
        for _ in range(5_000):
            with traces.request("GET", "/v1/beams", Role.VIEWER, {}) as request:
                assert request is not None
        assert time.monotonic() - began < 10.0
        while collector.requests == 0:
            assert time.monotonic() - began < 20.0
            time.sleep(0.05)
        began = time.monotonic()
        asyncio.run(traces.close())
        assert time.monotonic() - began < 10.0
        assert collector.spans() == []
