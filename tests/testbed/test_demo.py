from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.testbed import vehicle
from tests.testbed.namespace import command

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(bool(vehicle.missing()), reason=str(vehicle.missing())),
]

ROOT = Path(__file__).parents[2]


def test_the_demo_shows_commands_that_work_and_leaves_nothing() -> None:
    with _demo() as demo:
        assert demo.stdout is not None
        watchdog = threading.Timer(240, demo.kill)
        watchdog.start()
        text = ""
        try:
            for line in demo.stdout:
                text += line
                if "Ctrl-C ends it all" in line:
                    break
            for words in re.findall(r"^  (curl .*(?:/|/request))$", text, re.MULTILINE):
                answer = command([*words.split(), "--silent", "--show-error", "--fail"])
                assert "satellite hop" in answer or '"peer"' in answer
            later = re.search(r"^  (curl .*)'Prefer: respond-async' (.*)$", text, re.MULTILINE)
            assert later
            words = [*later[1].split(), "Prefer: respond-async", *later[2].split(), "--silent"]
            assert " 202 " in command(words)
            [off, on] = re.findall(r"sudo (.* switch (?:off|on) .*)$", text, re.MULTILINE)
            command(off.split())
            # In the tunnel such a dial times out; curl then tries again, but not after a refusal.
            [bare] = re.findall(r"^  (curl -x [^ ]+ http://[^ ]+/)$", text, re.MULTILINE)
            patient = ["--retry", "30", "--retry-delay", "2"]
            answer = command([*bare.split(), "--silent", "--show-error", "--fail", *patient])
            assert "satellite hop" in answer
            command(on.split())
            told = ""
            wanted = [
                "  position ",
                "  prediction ",
                "  rates ",
                " plan  .* D_u = .* D_b = .* D_r = ",
            ]
            while not all(re.search(one, told) for one in wanted):
                line = demo.stdout.readline()
                assert line, told
                told += line
            text += told
            [page] = re.findall(r"^  (curl -H .*/v1/terminals)$", text, re.MULTILINE)
            assert '"t3"' in command([*shlex.split(page), "--silent", "--show-error", "--fail"])
            asks = re.findall(r"^  (curl -H .*/v1/(?:blockages|beams/).*)$", text, re.MULTILINE)
            assert len(asks) == 3
            for words in asks:
                assert json.loads(command([*shlex.split(words), "--silent", "--fail"]))
            [speed] = re.findall(r"sudo (.* speed-test .*)$", text, re.MULTILINE)
            assert re.search("download .* Mbit/s", command(speed.split()))
            [begins] = re.findall(r"^  (curl -H .* \\\n .*/v1/rollouts)$", text, re.MULTILINE)
            rollout = [*shlex.split(begins), "--silent", "--show-error", "--fail"]
            one = json.loads(command(rollout))["id"]
            asked = [*shlex.split(page)[:3], "--silent", "--show-error", "--fail"]
            looked = f"{shlex.split(page)[-1].removesuffix('/terminals')}/rollouts/{one}"
            while (state := json.loads(command([*asked, looked]))["state"]) == "running":
                time.sleep(1)
            assert state == "done"
            [upgrade] = re.findall(r"sudo (.* upgrade --socket .*)$", text, re.MULTILINE)
            assert " goes on" in command(upgrade.split())
            assert next(line for line in demo.stdout if "is upgraded" in line)
            command(re.findall(r"sudo (pkill -9 -f .*)$", text, re.MULTILINE)[0].split())
            again = next(line for line in demo.stdout if "starting it again" in line)
            assert again.startswith("hub")
        finally:
            # Like make and the shell: both signals at once, and more than once.
            for number in (signal.SIGINT, signal.SIGTERM) * 10:
                demo.send_signal(number)
            text += demo.stdout.read()
            watchdog.cancel()
    assert demo.returncode == 0, text
    _left_nothing(demo)


def test_the_demo_ends_while_it_starts() -> None:
    with _demo() as demo:
        assert demo.stdout is not None
        watchdog = threading.Timer(60, demo.kill)
        watchdog.start()
        started = demo.stdout.readline()
        for number in (signal.SIGTERM, signal.SIGINT) * 10:
            demo.send_signal(number)
        text = started + demo.stdout.read()
        watchdog.cancel()
    assert demo.returncode == 0, text
    _left_nothing(demo)


def test_what_a_killed_demo_left_is_cleared_at_the_next_start() -> None:
    with _demo() as killed:
        assert killed.stdout is not None
        for line in killed.stdout:
            if "Try, in another terminal" in line:
                break
        killed.kill()
    assert f"up{killed.pid:x}" in command(["ip", "netns", "list"])
    with _demo() as demo:
        assert demo.stdout is not None
        watchdog = threading.Timer(60, demo.kill)
        watchdog.start()
        swept = demo.stdout.readline()
        demo.send_signal(signal.SIGINT)
        text = swept + demo.stdout.read()
        watchdog.cancel()
    assert "removed what an earlier run left" in swept, text
    for one in (killed, demo):
        _left_nothing(one)


def _demo() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.testbed.demo"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "control-api"},
        stdout=subprocess.PIPE,
        text=True,
    )


def _left_nothing(demo: subprocess.Popen[str]) -> None:
    own = f"up{demo.pid:x}"
    assert own not in command(["ip", "netns", "list"])
    assert own not in command(["ip", "-o", "link"])
