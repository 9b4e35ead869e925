"""Docker and Docker Compose, by their command lines."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_WITHIN_S = 300.0
_MOST_SAID = 800
_LABEL = "com.docker.compose.project"
_STATE = (
    '{{index .Config.Labels "com.docker.compose.service"}} {{.State.Status}} '
    "{{if .State.Health}}{{.State.Health.Status}}{{else}}none{{end}}"
)


class EngineError(RuntimeError):
    """The engine has refused, or does not answer; the text is its last output."""


@dataclass(frozen=True)
class ContainerState:
    """The state of a container, as the engine reports it."""

    name: str
    state: str
    health: str


class Engine:
    """The engine that `docker` talks to, as its own environment says (`DOCKER_HOST`)."""

    def __init__(self) -> None:
        self._compose: list[str] | None = None

    async def up(self, project: str, folder: Path) -> None:
        """Run a project as the file in its folder says; containers that match it stay.

        Raises:
            EngineError: It cannot.
        """
        await self._run_compose(project, folder, "up", "--detach", "--remove-orphans")

    async def down(self, project: str, folder: Path) -> None:
        """End all containers of a project; its own networks and volumes are deleted.

        Raises:
            EngineError: It cannot.
        """
        await self._run_compose(project, folder, "down", "--volumes", "--remove-orphans")

    async def restart(self, project: str, folder: Path, container: str) -> None:
        """End a container and start it again.

        Raises:
            EngineError: It cannot.
        """
        await self._run_compose(project, folder, "restart", container)

    async def states(self, project: str) -> list[ContainerState]:
        """Return the state of each container of a project.

        Raises:
            EngineError: The engine does not answer.
        """
        found = await _run(["docker", "ps", "-aq", "--filter", f"label={_LABEL}={project}"])
        ids = found.split()
        if not ids:
            return []
        told = await _run(["docker", "inspect", "--format", _STATE, *ids])
        states = [ContainerState(*line.split()) for line in told.splitlines()]
        return sorted(states, key=lambda one: one.name)

    async def _run_compose(self, project: str, folder: Path, *arguments: str) -> None:
        if self._compose is None:
            self._compose = await _compose()
        file = folder / "compose.json"
        options = ["--project-name", project, "--project-directory", str(folder)]
        await _run([*self._compose, *options, "--file", str(file), *arguments])


async def _compose() -> list[str]:
    """Return the command line of Compose: the plugin, or the program of its first version."""
    try:
        await _run(["docker", "compose", "version"])
    except EngineError:
        if shutil.which("docker-compose") is None:
            raise
        return ["docker-compose"]
    return ["docker", "compose"]


async def _run(command: Sequence[str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise EngineError(f"{command[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(_WITHIN_S):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise EngineError(f"{' '.join(command[:2])} takes longer than {_WITHIN_S:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = errors.decode(errors="replace").strip() or f"it ended with {process.returncode}"
        raise EngineError(said[-_MOST_SAID:])
    return output.decode(errors="replace")
