"""A drive played to readers of NMEA, and to the service while it comes and goes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner
from underpass_control.cli import app
from underpass_control.client import RefusedError
from underpass_control.replay.player import Played, play
from underpass_control.replay.sentences import sentences
from underpass_control.replay.targets import TargetError, target_of
from underpass_control.replay.timeline import Moment, Timeline
from underpass_control.tracks.nmea import read_nmea

from tests.control_api.replay.test_timeline import START_MS, fixes
from tests.free_port import free_port

TOKEN = "upc_of-the-tests"  # noqa: S105
# 40 s of a drive in 0.2 s.
DRIVE, SPEED = fixes(*range(40)), 200.0


def timeline() -> Timeline:
    return Timeline(DRIVE, SPEED)


def test_a_drive_goes_out_as_datagrams() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reader:
        reader.bind(("127.0.0.1", 0))
        reader.setblocking(False)
        url = f"udp://127.0.0.1:{reader.getsockname()[1]}"
        played = Played()
        asyncio.run(play(timeline(), target_of(url, token=None, terminal=None), played))
        lines = "".join(reader.recv(2000).decode() for _ in DRIVE).splitlines()
    assert (played.sent, played.fixes) == (40, 40)
    assert len(list(read_nmea(lines))) == 40


async def test_a_reader_that_connects_again_hears_the_rest() -> None:
    port = free_port()

    target = target_of(f"tcp-listen://127.0.0.1:{port}", token=None, terminal=None)
    playing = asyncio.create_task(play(timeline(), target, Played()))
    await asyncio.sleep(0.1)
    # Without a reader nothing is played.
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    first = await reader.readline()
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    rest = await reader.read(-1)
    writer.close()
    await playing
    assert b",00700.000000,E," in first
    # The last fix is at 7.0039 degrees.
    assert b",00700.234000,E," in rest


async def test_a_reader_of_a_serial_line_opens_a_pseudo_terminal(tmp_path: Path) -> None:
    link = tmp_path / "gps"

    target = target_of(f"pty:{link}", token=None, terminal=None)
    playing = asyncio.create_task(play(timeline(), target, Played()))
    while not link.exists():
        await asyncio.sleep(0.01)
    with link.open("rb", buffering=0) as line:
        os.set_blocking(line.fileno(), False)
        said = b""
        while not playing.done():
            said += line.read(4096) or b""
            await asyncio.sleep(0.01)
    await playing
    assert len(list(read_nmea(said.decode().splitlines()))) > 30
    assert not link.is_symlink()


class Control:
    """A control service that is away for a while, and refuses one terminal."""

    def __init__(self) -> None:
        self.away = 0
        self.batches: list[int] = []
        self.times: list[str] = []
        self.accuracies_m: list[float] = []

    async def take(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        positions = (await request.json())["positions"]
        if positions[0]["terminal"] == 99:
            problem = {"status": 409, "detail": "terminal 99 is not known"}
            return web.json_response(problem, status=409)
        if self.batches and self.away > 0:
            self.away -= 1
            return web.json_response({"detail": "away"}, status=503, headers={"Retry-After": "0"})
        self.batches.append(len(positions))
        self.times += [one["time"] for one in positions]
        self.accuracies_m += [one["accuracy_m"] for one in positions]
        return web.json_response({"accepted": len(positions)}, status=202)


async def replayed(control: Control, terminal: int) -> Played:
    application = web.Application()
    application.router.add_post("/v1/positions", control.take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    played = Played()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        await play(timeline(), target_of(url, token=TOKEN, terminal=terminal), played)
    finally:
        await runner.cleanup()
    return played


def test_what_the_service_misses_is_reported_when_it_is_back() -> None:
    control = Control()
    control.away = 3
    played = asyncio.run(replayed(control, 10))
    assert (played.sent, played.fixes, played.losses, played.trouble) == (40, 40, 1, None)
    assert len(control.times) == len(set(control.times)) == 40
    assert control.accuracies_m == [one.accuracy_m for one in DRIVE]
    assert max(control.batches) > 1


def test_a_refusal_ends_the_replay_and_says_why() -> None:
    with pytest.raises(RefusedError, match="terminal 99 is not known"):
        asyncio.run(replayed(Control(), 99))


class Listener:
    """A reader that records everything."""

    def __init__(self) -> None:
        self.heard: list[Moment] = []
        self.closed = False

    async def open(self) -> None:
        pass

    async def send(self, moments: Sequence[Moment]) -> None:
        self.heard.extend(moments)

    async def close(self) -> None:
        self.closed = True


async def test_a_loop_begins_anew_with_new_times() -> None:
    listener = Listener()
    drive = Timeline(fixes(0, 1), 100)
    playing = asyncio.create_task(play(drive, listener, Played(), again=True))
    while len(listener.heard) < 4:
        await asyncio.sleep(0.01)
    playing.cancel()
    await asyncio.wait({playing})
    assert listener.closed
    times = [one.time_ms for one in listener.heard]
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    "url", ["ftp://host", "udp://host", "http://host:99999999", "tcp-listen://", "pty:"]
)
def test_what_is_no_target_is_said_so(url: str) -> None:
    with pytest.raises(TargetError):
        target_of(url, token=None, terminal=10)


def test_the_verb_plays_a_file_and_sums_up(tmp_path: Path) -> None:
    log = tmp_path / "drive.nmea"
    log.write_bytes(b"".join(map(sentences, Timeline(DRIVE).moments(START_MS))))
    to = f"udp://127.0.0.1:{free_port()}"
    result = CliRunner().invoke(
        app, ["replay", str(log), "--to", to, "--speed", "400", "--json"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    said = {
        "fixes": 40,
        "sent": 40,
        "losses": 0,
        "trouble": None,
        "left_out": 0,
        "unreadable_lines": 0,
    }
    assert json.loads(result.stdout) == said
    wrong = CliRunner().invoke(app, ["replay", str(log), "--to", "http://127.0.0.1:1"])
    assert wrong.exit_code == 1
    assert "--terminal" in wrong.output
