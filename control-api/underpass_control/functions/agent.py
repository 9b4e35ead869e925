"""The agent of a site: makes the engine run the slices that the control service describes.

It is a separate process on the engine's host, since any user of the engine is root there. It takes
only names, numbers and settings from the service, checks them itself, and makes containers only
from its own descriptors. So a compromised service gets no rights on the host.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import structlog
from pydantic import ValidationError

from underpass_control.functions.compose import Project, project, project_name
from underpass_control.functions.descriptors import Descriptor
from underpass_control.functions.engine import ContainerState, EngineError
from underpass_control.functions.room import Needs, Room, needs_of
from underpass_control.functions.sites import SiteFile
from underpass_control.functions.slices import Desired, SliceError, checked

_LOG = structlog.get_logger()
# A container that is unhealthy for this long is restarted.
HEAL_AFTER_S = 60.0
# Work that takes the engine longer goes on in the background, for this many slices at once.
_PATIENCE_S = 5.0
_AT_ONCE = 8
_APPLIED = "applied"
# The room that a slice may use, kept beside its project.
_NEEDS = "needs.json"
_MOST_DETAIL = 1000

Report = dict[str, Any]


class RunsProjects(Protocol):
    """The engine as the agent needs it."""

    async def up(self, project: str, folder: Path, /) -> None:
        """Have a project run."""

    async def down(self, project: str, folder: Path, /) -> None:
        """End a project."""

    async def restart(self, project: str, folder: Path, container: str, /) -> None:
        """Start a container again."""

    async def states(self, project: str, /) -> list[ContainerState]:
        """Return the state of each container."""


class Agent:
    """Makes the running containers match the described ones; `now_s` is a clock without steps."""

    def __init__(
        self,
        engine: RunsProjects,
        catalogue: Mapping[str, Descriptor],
        site: SiteFile,
        folder: Path,
        now_s: Callable[[], float],
    ) -> None:
        """Take the folder where projects are kept, one folder each."""
        self._engine = engine
        self._catalogue = catalogue
        self._site = site
        self._folder = folder
        self._now_s = now_s
        # Since when a container is unhealthy.
        self._unhealthy: dict[tuple[str, str], float] = {}
        # The engine's work in progress, by slice.
        self._working: dict[str, asyncio.Task[Report]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def bring(self, given: list[Any]) -> list[Report]:
        """Do what the service's answer says; return the report of each slice that is done.

        A slice that cannot run is reported as failed and stops no other. A slice that takes the
        engine long stops no other either: it is reported, and changed again, only once it is done.
        """
        reports = []
        ordered = self._ordered(given)
        room = Room(self._site)
        for desired, _ in ordered:
            # A change that is refused leaves the slice as it runs.
            room.hold(desired, _held(self._folder / desired.name))
        for desired, ending in ordered:
            try:
                made = None if ending else self._made(desired, room)
            except (SliceError, OSError) as error:
                reports.append(_failed(desired, error))
                continue
            if desired.name not in self._working:
                work = self._worked(desired, made)
                self._working[desired.name] = asyncio.create_task(work)
        if self._working:
            await asyncio.wait(self._working.values(), timeout=_PATIENCE_S)
        for name, task in list(self._working.items()):
            if task.done():
                del self._working[name]
                reports.append(task.result())
        return reports

    async def _worked(self, desired: Desired, made: tuple[Project, Needs] | None) -> Report:
        """Make a slice match its project, or end it; return the report."""
        try:
            async with self._slots:
                if made is None:
                    return await self._end(desired)
                return await self._bring(desired, *made)
        except (SliceError, EngineError, OSError) as error:
            return _failed(desired, error)

    def _ordered(self, given: list[Any]) -> list[tuple[Desired, bool]]:
        """Return slices, and whether they end; running ones first, so that they keep their room."""
        found = []
        for one in given:
            try:
                members = {name: value for name, value in one.items() if name != "ending"}
                found.append((Desired.model_validate(members), one["ending"] is True))
            except (ValidationError, AttributeError, KeyError) as error:
                _LOG.warning("a slice is none", error=str(error))
        found.sort(key=lambda one: not (self._folder / one[0].name / _APPLIED).exists())
        return found

    def _made(self, desired: Desired, room: Room) -> tuple[Project, Needs]:
        """Return a slice's project and what it needs, and take the room for it.

        Raises:
            SliceError: It cannot run here.
            OSError: The room cannot be noted.
        """
        body = checked(desired.body, self._catalogue)
        whole = desired.model_copy(update={"body": body})
        made = project(whole, self._catalogue, self._site.place, str(self._site.certificates))
        self._check_certificates(desired, made)
        needs = needs_of(whole, self._catalogue, self._site)
        taken = room.take(whole, needs)
        if desired.name not in self._working:
            _note_needs(self._folder / desired.name, taken)
        return made, needs

    async def _end(self, desired: Desired) -> Report:
        folder, name = self._folder / desired.name, project_name(desired.name)
        if (folder / "compose.json").exists():
            await self._engine.down(name, folder)
            _LOG.info("slice terminated", slice=desired.name)
        if folder.exists():
            shutil.rmtree(folder)
        return _report(desired, "ended")

    async def _bring(self, desired: Desired, made: Project, needs: Needs) -> Report:
        folder, name = self._folder / desired.name, project_name(desired.name)
        states = await self._engine.states(name)
        if _is_applied(folder, made, states):
            await self._heal(desired, folder, states)
        else:
            _write(folder, made)
            await self._engine.up(name, folder)
            # Written last, so that interrupted work is done again.
            _replace(folder / _APPLIED, _text_of(made))
            _LOG.info("slice brought up", slice=desired.name, revision=desired.revision)
            states = await self._engine.states(name)
        # What ran before it has ended, and its room is free.
        _note_needs(folder, needs)
        # Containers that someone else has put under the project's name are not the slice's.
        own = [one for one in states if one.name in made.document["services"]]
        return _report(desired, "running", containers=own)

    async def _heal(self, desired: Desired, folder: Path, states: list[ContainerState]) -> None:
        now_s = self._now_s()
        for one in states:
            key = (desired.name, one.name)
            if one.health != "unhealthy":
                self._unhealthy.pop(key, None)
            elif now_s - self._unhealthy.setdefault(key, now_s) >= HEAL_AFTER_S:
                _LOG.warning("container healed", slice=desired.name, container=one.name)
                await self._engine.restart(project_name(desired.name), folder, one.name)
                del self._unhealthy[key]

    def _check_certificates(self, desired: Desired, made: Project) -> None:
        for node in sorted(made.certificates):
            place = self._site.certificates / desired.tenant / "nodes" / str(node)
            if not (place / "node.crt").is_file():
                raise SliceError(f"the site has no certificate of node {node} for {desired.tenant}")


def _failed(desired: Desired, error: Exception) -> Report:
    _LOG.warning("a slice cannot be run", slice=desired.name, error=str(error))
    return _report(desired, "failed", detail=_said(error))


def _said(error: Exception) -> str:
    return str(error).replace("\0", "")[:_MOST_DETAIL]


def _report(
    desired: Desired,
    state: str,
    *,
    detail: str | None = None,
    containers: list[ContainerState] | None = None,
) -> Report:
    report: Report = {"name": desired.name, "revision": desired.revision, "state": state}
    if detail is not None:
        report["detail"] = detail
    if containers is not None:
        report["containers"] = [asdict(one) for one in containers]
    return report


def _held(folder: Path) -> Needs:
    try:
        held: Needs = json.loads((folder / _NEEDS).read_text())
    except OSError:
        return {}
    return held


def _note_needs(folder: Path, needs: Needs) -> None:
    if _held(folder) != needs:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / _NEEDS, json.dumps(needs))


def _text_of(made: Project) -> str:
    return json.dumps(made.document, indent=1) + "\n"


def _is_applied(folder: Path, made: Project, states: list[ContainerState]) -> bool:
    """Tell whether the engine was given exactly this project, and each container exists."""
    try:
        same = (folder / _APPLIED).read_text() == _text_of(made)
    except OSError:
        return False
    return same and {one.name for one in states} == set(made.document["services"])


def _write(folder: Path, made: Project) -> None:
    """Write a project's files, readable for the containers' users and writable for none."""
    folder.mkdir(parents=True, exist_ok=True)
    # Until the engine has all of it, it is unknown what runs.
    (folder / _APPLIED).unlink(missing_ok=True)
    for one in _stale(folder, made):
        shutil.rmtree(one)
    for container, files in made.files.items():
        place = folder / container
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
        for name, text in files.items():
            _replace(place / name, text)
    _replace(folder / "compose.json", _text_of(made))


def _stale(folder: Path, made: Project) -> Iterator[Path]:
    for one in folder.iterdir():
        if one.is_dir() and one.name not in made.files:
            yield one


def _replace(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.chmod(0o644)
    new.replace(path)
