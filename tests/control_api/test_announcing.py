"""What a terminal announces and when, and how it learns its position."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner
from underpass_control.announcing import gpsd, positions
from underpass_control.announcing.announcer import Announcer
from underpass_control.announcing.station import announce
from underpass_control.cli import app
from underpass_control.client import Client, RefusedError
from underpass_control.replay.player import Played, play
from underpass_control.replay.targets import target_of
from underpass_control.replay.timeline import Timeline
from underpass_control.tracks.nmea import Counts

from dama.prediction import Fix
from tests.dama.prediction.test_laws import MAP, START_MS, TUNNEL_M, eastwards, fix, line
from tests.dama.prediction.test_passages import serpentine
from tests.dama.prediction.test_predictor import forked
from tests.free_port import free_port

VECTORS = Path(__file__).parents[2] / "docs" / "vectors" / "gpsd.json"


def fed(announcer: Announcer, fixes: list[Fix]) -> list[tuple[float, float, float]]:
    """Feed fixes; return entry, duration (s) and confidence of the announcements made."""
    heard = []
    for one in fixes:
        announcer.feed(one)
        for told in announcer.due(one.time_ms):
            announcer.said(told)
            entry_s = (told.entry_ms - START_MS) / 1000
            heard.append((entry_s, told.duration_ms / 1000, told.confidence))
    return heard


def test_a_steady_drive_to_a_tunnel_is_announced_once_or_little_more() -> None:
    heard = fed(Announcer(MAP), eastwards(-400.0, 20.0))
    assert 1 <= len(heard) <= 3
    entry_s, duration_s, confidence = heard[-1]
    assert entry_s == pytest.approx(30 + 400 / 20, abs=3)
    assert duration_s == pytest.approx(TUNNEL_M / 20, rel=0.2)
    assert confidence > 0.5


@pytest.mark.parametrize("back_s", [60, 7_200])
def test_after_the_clock_is_set_back_announcing_goes_on(back_s: int) -> None:
    announcer = Announcer(MAP)
    assert fed(announcer, eastwards(-400.0, 20.0))
    again = [replace(one, time_ms=one.time_ms - 1_000 * back_s) for one in eastwards(-400.0, 20.0)]
    entry_s, _, confidence = fed(announcer, again)[-1]
    assert entry_s == pytest.approx(50 - back_s, abs=3)
    assert confidence > 0.5


def test_a_fix_that_is_a_little_late_changes_nothing() -> None:
    announcer = Announcer(MAP)
    fed(announcer, eastwards(-400.0, 20.0))
    track = announcer._predictor.track
    announcer.feed(fix(27, -460.0, 0.0, 20.0))
    assert announcer._predictor.track is track


def test_of_two_passages_of_one_obstruction_the_next_one_is_announced() -> None:
    # The road is under the roof for 10 s from second 50 on, and again from second 80 on.
    announcer = Announcer(serpentine())
    heard = fed(announcer, eastwards(-400.0, 20.0))
    assert heard
    assert [entry_s for entry_s, _, _ in heard] == pytest.approx([50.0] * len(heard), abs=3.0)
    fed(announcer, [fix(30 + n, -400.0 + 20.0 * n, 0.0, 20.0) for n in range(1, 20)])
    behind = fed(announcer, [fix(31 + n, -380.0 + 20.0 * n, 0.0, 20.0) for n in range(31, 36)])
    assert behind[-1][0] == pytest.approx(80.0, abs=3.0)
    assert behind[-1][2] > 0.5


def test_another_map_leaves_the_habits_as_they_are() -> None:
    announcer = Announcer(MAP)
    # Through the tunnel, and silent until the drive is over.
    fed(announcer, eastwards(1_500.0, 20.0, seconds=150))
    announcer.feed(fix(3_600, -1_500.0, 0.0, 20.0))
    habits = announcer._predictor.habits
    assert len(habits.drives) == 1
    announcer.set_map(MAP)
    assert announcer._predictor.habits == habits


@pytest.mark.parametrize(
    ("route", "least", "most"),
    [
        (None, 0.4, 0.6),
        (((-2000, 0), (900, 0)), 0.8, 1.0),
        (((-2000, 0), (-300, 0), (-150, 150), (0, 400)), 0.0, 0.0),
    ],
)
def test_a_known_route_decides_at_a_junction_whatever_the_map(
    route: tuple[tuple[float, float], ...] | None, least: float, most: float
) -> None:
    announcer = Announcer(MAP)
    announcer.set_route(line(*route) if route else None)
    announcer.set_map(forked(0.5))
    heard = fed(announcer, eastwards(-600.0, 20.0))
    assert least <= (heard[-1][2] if heard else 0.0) <= most


def test_a_route_that_is_no_longer_known_leaves_it_to_the_map() -> None:
    announcer = Announcer(forked(0.5))
    announcer.set_route(line((-2000, 0), (900, 0)))
    drive = eastwards(-600.0, 20.0)
    assert fed(announcer, drive)[-1][2] > 0.8
    announcer.set_route(None)
    assert fed(announcer, drive[-1:])[-1][2] < 0.6


def test_what_could_not_be_said_stays_due() -> None:
    announcer = Announcer(MAP)
    for one in eastwards(-400.0, 20.0):
        announcer.feed(one)
    now_ms = one.time_ms
    (first,) = announcer.due(now_ms)
    (again,) = announcer.due(now_ms + 1000)
    assert first.obstruction_id == again.obstruction_id
    announcer.said(again)
    assert announcer.due(now_ms + 1000) == []


def test_whoever_turns_off_withdraws_what_was_announced() -> None:
    announcer = Announcer(MAP)
    assert fed(announcer, eastwards(-400.0, 20.0))
    away = [fix(30 + n, -400.0, 20.0 * n, 20.0, 0.0) for n in range(1, 12)]
    assert fed(announcer, away)[-1][2] == 0.0
    assert announcer.due(away[-1].time_ms + 1000) == []


def test_a_stop_on_the_way_is_announced_as_a_later_entry() -> None:
    announcer = Announcer(MAP)
    before = fed(announcer, eastwards(-600.0, 20.0))
    stood = fed(announcer, [fix(30 + n, -600.0, 0.0, 0.0, None) for n in range(1, 20)])
    assert stood[0][0] > before[-1][0]


def test_inside_nothing_is_said_again() -> None:
    announcer = Announcer(MAP)
    drive = eastwards(-60.0, 20.0)
    assert fed(announcer, drive)
    entered_ms = drive[-1].time_ms + 4_000
    for second in range(15):
        assert announcer.due(entered_ms + 1000 * second) == []


@pytest.mark.parametrize(
    "case", json.loads(VECTORS.read_text())["cases"], ids=lambda case: str(case["name"])
)
def test_reports_of_gpsd_are_read_as_the_vectors_say(case: dict[str, Any]) -> None:
    counts = Counts()
    read = [gpsd.read_report(line.encode(), None, counts) for line in case["lines"]]
    found = [one for one in read if one is not None]
    dated = [one for one in case["fixes"] if one["time_ms"] is not None]
    assert [one.time_ms for one in found] == [one["time_ms"] for one in dated]
    for one, expected in zip(found, dated, strict=True):
        assert (one.lon, one.lat) == (expected["longitude"], expected["latitude"])
        assert one.speed_mps == expected.get("speed_mps")
        assert one.heading_deg == expected.get("heading_deg")
        assert one.accuracy_m == pytest.approx(expected.get("accuracy_m"), abs=1e-9)
    undated = len(case["fixes"]) - len(dated)
    counted = case["counts"]
    assert vars(counts) == counted | {
        "fixes": counted["fixes"] - undated,
        "rejected": counted["rejected"] + undated,
    }


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 50_000,
        b'{"class":"SKY","mode":3,"lat":46.0,"lon":7.0}',
        b'{"class":"TPV","mode":1,"lat":46.0,"lon":7.0}',
        b'{"class":"TPV","mode":3,"lat":460.0,"lon":7.0}',
        b'{"class":"TPV","mode":3,"lat":NaN,"lon":7.0}',
        b'{"class":"TPV","mode":3,"lon":7.0}',
        b'{"class":"TPV","mode":3,"status":8,"lat":46.0,"lon":7.0}',
        b'{"class":"TPV","mode":3,"lat":46.0,"lon":7.0,"time":"yesterday"}',
    ],
)
def test_what_is_no_fix_of_gpsd_is_passed_over(line: bytes) -> None:
    assert gpsd.read_report(line, 1_900_000_000_000) is None


def test_a_report_of_gpsd_is_read_and_a_wrong_clock_replaced() -> None:
    report = {
        "class": "TPV",
        "mode": 3,
        "time": "2030-03-17T17:46:39.500Z",
        "lat": 46.0,
        "lon": 7.0,
        "speed": 20.0,
        "track": 90.0,
        "eph": 10.0,
    }
    line = json.dumps(report).encode()
    near = gpsd.read_report(line, 1_900_000_000_000)
    assert near == Fix(1_899_999_999_500, 7.0, 46.0, 20.0, 90.0, 10.0)
    astray = gpsd.read_report(json.dumps(report | {"track": 361.0}).encode(), near.time_ms)
    assert astray is not None
    assert (astray.heading_deg, astray.speed_mps) == (None, 20.0)
    far = gpsd.read_report(line, 1_900_000_100_000)
    assert far is not None
    assert far.time_ms == 1_900_000_100_000


@pytest.mark.parametrize(
    ("told", "accuracy_m"),
    [
        ({"eph": 4.0, "epx": 1.0, "epy": 1.0}, 4.0),
        # The same as in the node's test of its own client.
        ({"epx": 8.0, "epy": 6.0}, 50.0**0.5),
        ({"epx": 6.0}, None),
        ({"status": 5}, 30.0),
        ({"status": 6, "eph": 12.0}, 12.0),
        ({"status": 1}, None),
    ],
)
def test_an_error_is_read_as_the_node_reads_it(
    told: dict[str, Any], accuracy_m: float | None
) -> None:
    report = {"class": "TPV", "mode": 3, "lat": 46.0, "lon": 7.0} | told
    fix = gpsd.read_report(json.dumps(report).encode(), 1_900_000_000_000)
    assert fix is not None
    assert fix.accuracy_m == (accuracy_m and pytest.approx(accuracy_m))


class Node:
    """A node's local API: gives positions, takes announcements."""

    def __init__(self) -> None:
        self.announced: list[dict[str, Any]] = []
        self.position: object = None
        self.failures = 0

    async def tell(self, _request: web.Request) -> web.Response:
        if self.position is None:
            return web.json_response({"detail": "no receiver is configured"}, status=404)
        return web.json_response({"source": {}, "fix": self.position})

    async def take(self, request: web.Request) -> web.Response:
        if self.failures:
            self.failures -= 1
            return web.Response(status=503)
        self.announced.append(await request.json())
        return web.Response(status=202)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.02)


@asynccontextmanager
async def listening(node: Node, path: Path) -> AsyncIterator[Client]:
    application = web.Application()
    application.router.add_get("/v1/position", node.tell)
    application.router.add_post("/v1/announcements", node.take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        async with Client(f"unix:{path}") as client:
            yield client
    finally:
        await runner.cleanup()


async def test_the_nodes_own_positions_make_announcements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("underpass_control.announcing.positions._EVERY_S", 0.005)
    monkeypatch.setattr("underpass_control.announcing.station._EVERY_S", 0.02)
    node = Node()
    node.failures = 2
    drive = eastwards(-400.0, 20.0)
    shift_ms = positions.now_ms() - drive[-1].time_ms
    async with listening(node, tmp_path / "api.sock") as client:
        node.position = _told(drive[0], shift_ms)
        fixes = positions.from_node(client)
        task = asyncio.create_task(announce(Announcer(MAP), fixes, client, None))
        for one in drive:
            node.position = _told(one, shift_ms)
            await asyncio.sleep(0.02)
        await node.until(lambda: bool(node.announced))
        task.cancel()
        await asyncio.wait({task})
    told = node.announced[-1]
    assert set(told) == {"entry", "duration_s", "confidence", "obstruction"}
    assert told["duration_s"] > 1


def test_a_node_without_receiver_ends_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with listening(Node(), tmp_path / "api.sock") as client:
            await announce(Announcer(MAP), positions.from_node(client), client, None)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(run())
    assert raised.group_contains(RefusedError, match="no receiver is configured")


@pytest.mark.skipif(shutil.which("gpsd") is None, reason="Debian's package `gpsd` is missing")
async def test_a_drive_replayed_through_gpsd_is_announced(tmp_path: Path) -> None:
    node = Node()
    port = free_port()
    source = f"udp://127.0.0.1:{port}"
    drive = Timeline(eastwards(-700.0, 20.0), speed=5)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(listening(node, tmp_path / "api.sock"))
        daemon = subprocess.Popen(
            ["gpsd", "-N", "-n", "-S", str(port), source], stderr=subprocess.DEVNULL
        )
        stack.callback(daemon.wait)
        stack.callback(daemon.terminate)
        await _until_open(port)
        fixes = positions.from_gpsd("127.0.0.1", port)
        task = asyncio.create_task(announce(Announcer(MAP), fixes, client, None))
        stack.callback(task.cancel)
        target = target_of(source, token=None, terminal=None)
        playing = asyncio.create_task(play(drive, target, Played(), again=True))
        stack.callback(playing.cancel)
        await node.until(lambda: bool(node.announced))
    assert node.announced[0]["confidence"] > 0


def test_the_verb_wants_one_map(tmp_path: Path) -> None:
    for arguments in ([], ["--map", "x.json", "--control", "http://x"]):
        result = CliRunner().invoke(app, ["announce", *arguments])
        assert result.exit_code == 1
        assert "one map" in result.output
    routed = CliRunner().invoke(app, ["announce", "--map", "x.json", "--terminal", "11"])
    assert (routed.exit_code, "--control" in routed.output) == (1, True)
    broken = tmp_path / "x.json"
    broken.write_text("{")
    result = CliRunner().invoke(app, ["announce", "--map", str(broken)])
    assert result.exit_code == 1
    assert "no JSON" in result.output


async def _until_open(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def _told(one: Fix, shift_ms: int) -> dict[str, object]:
    return {
        "longitude": one.lon,
        "latitude": one.lat,
        "speed_mps": one.speed_mps,
        "heading_deg": one.heading_deg,
        "node_time_ms": one.time_ms + shift_ms,
        "synchronised": True,
        "age_s": 0.1,
    }
