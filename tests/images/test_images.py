"""Hub, terminal, control service and PostgreSQL, from images, on one machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.free_port import free_port
from tests.images.engine import NoEngineError, build_images, engine

ROOT = Path(__file__).parents[2]
SERVICES = {"control", "database", "hub", "terminal"}

pytestmark = [
    pytest.mark.skipif(
        "UNDERPASS_TEST_IMAGES" not in os.environ,
        reason="building three images takes minutes: `make test-images` does it",
    ),
    pytest.mark.timeout(1200),
]


@dataclass
class System:
    """The composed system, in a copy of docker/."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str) -> str:
        """Run a program in the folder, and return its output."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def compose(self, *arguments: str) -> str:
        """Run docker compose, of either version."""
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        program = ["docker", "compose"] if plugin.returncode == 0 else ["docker-compose"]
        return self.run(*program, *arguments)

    def control(self, *arguments: str) -> Any:
        """Run a command of the command line as the operator, and return its JSON."""
        token = (self.folder / "secrets" / "operator.token").read_text().strip()
        verb = ["underpass-control", *arguments, "--json", "--token", token]
        return json.loads(self.compose("exec", "-T", "control", *verb))

    def health(self) -> dict[str, str]:
        """Return the state of each service's container."""
        ids = self.compose("ps", "-q").split()
        label = '{{index .Config.Labels "com.docker.compose.service"}}'
        told = self.run("docker", "inspect", "-f", label + " {{.State.Health.Status}}", *ids)
        return dict(line.split() for line in told.splitlines())


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("images") / "docker"
    shutil.copytree(ROOT / "docker", folder, ignore=shutil.ignore_patterns("secrets"))
    # The origin of these tests is on a private network.
    with (folder / "hub.toml").open("a") as config:
        config.write('allow_networks = ["172.30.84.0/27"]\n')
    try:
        with engine() as environment:
            names = ("CONTROL_PORT", "SOCKS_PORT", "HTTP_PORT")
            environment |= {name: str(free_port()) for name in names}
            environment["COMPOSE_PROJECT_NAME"] = "underpass-test"
            build_images(environment)
            running = System(folder, environment)
            try:
                running.run("./init")
                running.compose("up", "-d")
                yield running
            finally:
                running.compose("down", "--volumes")
                # Some files belong to the images' users.
                shutil.rmtree(folder / "secrets", ignore_errors=True)
    except NoEngineError as error:
        pytest.skip(str(error))


def test_all_come_up_healthy_as_nobody_special(system: System) -> None:
    until(lambda: system.health() == dict.fromkeys(SERVICES, "healthy"))
    for service in SERVICES:
        assert system.compose("exec", "-T", service, "id", "-u").strip() != "0"


def test_a_client_downloads_through_terminal_and_hub(system: System) -> None:
    origin = ["docker", "run", "-d", "--rm", "--network", "underpass-test_hop"]
    origin += ["--ip", "172.30.84.10", "--workdir", "/opt/underpass", "--entrypoint", "python3"]
    name = system.run(*origin, "underpass-control", "-m", "http.server", "8000").strip()
    try:
        proxy = f"socks5h://127.0.0.1:{system.environment['SOCKS_PORT']}"
        url = "http://172.30.84.10:8000/migrations/README.md"
        fetched: list[str] = []

        def arrives() -> bool:
            curl = ["curl", "-sf", "-m", "10", "--proxy", proxy, url]
            fetched.append(subprocess.run(curl, capture_output=True, text=True, check=False).stdout)
            return bool(fetched[-1])

        until(arrives)
        assert fetched[-1] == (ROOT / "migrations" / "README.md").read_text()
    finally:
        system.run("docker", "rm", "-f", name)


def test_what_the_terminal_reports_reaches_the_database_and_stays(system: System) -> None:
    capacity = ("--forward-capacity", "140M", "--return-capacity", "10M")
    system.control("beam", "set", "east", "--name", "East", *capacity)
    system.control("terminal", "set", "10", "--beam", "east", "--name", "Bus 10")

    def positions() -> list[Any]:
        found: list[Any] = system.control("position", "list", "10")
        return found

    until(lambda: bool(positions()))
    assert positions()[0]["longitude"] == 1.52
    system.compose("restart", "database", "control")
    until(lambda: system.health() == dict.fromkeys(SERVICES, "healthy"))
    assert positions()


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition that may take minutes on a slow machine."""
    end = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < end
        time.sleep(1)
