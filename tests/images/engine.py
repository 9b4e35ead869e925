"""A Docker engine: a running one, or one that the tests start."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.testbed import programs

_ROOT = Path(__file__).parents[2]
_START_S = 30


class NoEngineError(Exception):
    """No engine runs, and none can be started; the text says why."""


@contextmanager
def engine() -> Iterator[dict[str, str]]:
    """Yield the environment in which `docker` reaches the engine."""
    if shutil.which("docker") is None:
        raise NoEngineError("there is no program docker: `.ci/setup --images` installs it")
    if _answers(os.environ):
        yield dict(os.environ)
        return
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        raise NoEngineError(
            "no Docker engine answers, and root with dockerd is needed to start one"
        )
    folder = Path(tempfile.mkdtemp(prefix="underpass-docker-"))
    try:
        with _started(folder) as environment:
            yield environment
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _started(folder: Path) -> Iterator[dict[str, str]]:
    address = f"unix://{folder}/socket"
    log = folder / "log"
    command = ["dockerd", "--host", address, "--pidfile", str(folder / "pid")]
    command += ["--data-root", str(folder / "data"), "--exec-root", str(folder / "run")]
    environment = {**os.environ, "DOCKER_HOST": address}
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as daemon,
    ):
        try:
            until = time.monotonic() + _START_S
            while not _answers(environment):
                if daemon.poll() is not None or time.monotonic() > until:
                    last = log.read_text(errors="replace").strip().splitlines()[-1:]
                    raise NoEngineError(f"dockerd does not start here: {' '.join(last)}")
                time.sleep(0.2)
            yield environment
        finally:
            daemon.terminate()


def build_images(environment: Mapping[str, str]) -> None:
    """Build all images of docker/ with the built program."""
    built = {**environment, "UNDERPASS_BIN": str(Path(programs.built("underpass")).parent)}
    subprocess.run([_ROOT / "docker" / "build"], env=built, check=True)


def _answers(environment: Mapping[str, str]) -> bool:
    asked = subprocess.run(["docker", "info"], env=environment, capture_output=True, check=False)
    return asked.returncode == 0
