from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from itertools import islice
from types import TracebackType
from typing import Any, Self, cast

import pytest

from dama.prediction import Fix
from tests.benchmarks.experiments.two_processes import Load, Measured, compared, passed_over
from tests.benchmarks.moving_posts import Fleet, Posted, post_moving

TRACKS = [
    tuple(Fix(1000 * n, 10.0 + 0.001 * n, 50.0 + track) for n in range(7)) for track in (0, 1)
]


def test_two_processes_serve_as_many_as_the_busier_one_lets_them() -> None:
    one = [Measured((Load(20.0, 50_000),), 0.5, 1_900.0)] * 2
    two = [
        Measured((Load(10.0, 25_000), Load(10.0, 25_000)), 0.5, 2_850.0),
        Measured((Load(10.0, 25_000), Load(16.0, 25_000)), 0.5, 1_900.0),
    ]
    found = compared(one, two)
    assert found["scale"] == [pytest.approx(2.0), pytest.approx(1.25)]
    assert found["cost.one"] == [pytest.approx(400.0)] * 2
    assert found["cost.two"] == [pytest.approx(400.0), pytest.approx(520.0)]
    assert found["most-scale"] == [pytest.approx(1.5), pytest.approx(1.0)]


def test_positions_passed_over_are_read_from_the_metrics() -> None:
    name = "underpass_control_positions_passed_over_total"
    assert passed_over(f"# TYPE {name} counter\n{name} 120.0\nother_total 3.0\n") == 120.0
    assert passed_over("") == 0.0


def test_a_fleet_moves_by_its_tracks_second_by_second() -> None:
    fleet = Fleet(9, 11, 6, TRACKS)
    assert list(fleet.nodes) == [11, 12, 13, 14, 15, 16]
    first, second = islice(fleet.seconds, 2)
    for number, (before, after) in enumerate(zip(first, second, strict=True)):
        assert before in TRACKS[number % 2]
        assert (after.time_ms - before.time_ms) % 7_000 == 1_000


class Gateway:
    """Takes posts in the place of a session, and answers them with a status."""

    def __init__(self, status: HTTPStatus = HTTPStatus.OK, *, answers: bool = True) -> None:
        self.status = status
        self.answers = answers
        self.bodies: list[dict[str, Any]] = []

    def post(self, path: str, *, data: bytes) -> Answer:
        assert path == "/v1/reports"
        self.bodies.append(json.loads(data))
        return Answer(self)


class Answer:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.status = gateway.status

    async def __aenter__(self) -> Self:
        # Else the answer comes long after the last post.
        await asyncio.sleep(0.0 if self.gateway.answers else 3.0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, error, trace

    def raise_for_status(self) -> None:
        if self.status != HTTPStatus.OK:
            raise RuntimeError(str(self.status))

    async def json(self) -> dict[str, Any]:
        return {"refused": []}


def posted(gateway: Gateway, **more: int) -> Posted:
    fleet = Fleet(9, 11, 250, TRACKS)
    return asyncio.run(post_moving(cast("Any", gateway), fleet, 0.1, **more))


def test_each_vehicle_is_posted_once_a_second_under_its_number() -> None:
    gateway = Gateway()
    found = posted(gateway)
    # A second's posts are made as a whole, also in a run of a tenth of one.
    nodes = [entry["node"] for body in gateway.bodies for entry in body["reports"]]
    assert nodes == list(range(11, 261))
    assert {body["node"] for body in gateway.bodies} == {9}
    assert (found.stored, found.left_out, len(found.answered_s)) == (250, 0, 3)


def test_only_the_first_vehicles_are_posted_where_fewer_are_asked_for() -> None:
    gateway = Gateway()
    assert posted(gateway, vehicles=100).stored == 100
    assert [len(body["reports"]) for body in gateway.bodies] == [100]


def test_posts_beyond_those_without_an_answer_are_left_out_and_counted() -> None:
    gateway = Gateway(answers=False)
    found = posted(gateway, most_open=1)
    assert (found.stored, found.left_out) == (100, 150)


def test_a_busy_service_is_an_error_unless_posts_may_be_left_out() -> None:
    busy = Gateway(HTTPStatus.SERVICE_UNAVAILABLE)
    assert posted(busy, most_open=9).left_out == 250
    with pytest.raises(RuntimeError):
        posted(busy)


def test_a_refused_report_ends_the_run() -> None:
    class Refusing(Answer):
        async def json(self) -> dict[str, Any]:
            return {"refused": ["no such terminal"]}

    class RefusingGateway(Gateway):
        def post(self, path: str, *, data: bytes) -> Answer:
            super().post(path, data=data)
            return Refusing(self)

    with pytest.raises(RuntimeError, match="no such terminal"):
        posted(RefusingGateway())
