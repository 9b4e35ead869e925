"""Sorts a post's reports by what they become, and separates refused ones."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from dama.planner import Link
from dama.prediction import Announcement, AnnouncementError
from underpass_control.planning.acknowledgements import Acknowledgement
from underpass_control.reports import messages, times
from underpass_control.storage.announcements import Announced
from underpass_control.storage.attachments import Attachment
from underpass_control.storage.blockages import Observed, Paths
from underpass_control.storage.links import MOST_OTHER_PATHS, LinkState
from underpass_control.storage.nodes import NodeReport
from underpass_control.storage.positions import Position
from underpass_control.storage.settings import Reported, ReportedState
from underpass_control.storage.usage import Count

# The most links in all of a post's reports, which bounds its cost.
MOST_LINKS = 20_000

# The size limit, as JSON, of the paths beside the beam's that are shown of a link, and of its
# classes. A link has to fit into one change (`underpass_control.storage.changes`), and a character
# of a name may take twelve bytes.
_MOST_LISTED_BYTES = 1_800


class RefusedError(ValueError):
    """A report that is not taken in, with the reason."""


class Carries(TypedDict):
    """The capacity of a link: members that states and counts share."""

    efficiency: float
    efficiency_told: bool
    capacity_bps: int | None
    capacity_reason: str | None


@dataclass
class Sorted:
    """The results of a post's reports."""

    states: list[LinkState] = field(default_factory=list)
    # By terminal, direction and the time of the report.
    paths: dict[tuple[int, str, int], Paths] = field(default_factory=dict)
    counts: list[Count] = field(default_factory=list)
    nodes: list[NodeReport] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    blockages: list[Observed] = field(default_factory=list)
    announcements: list[Announced] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    settings: list[Reported] = field(default_factory=list)
    # The number of links to unknown terminals, which may be set later.
    strangers: set[int] = field(default_factory=set)
    # The number of links to terminals at other gateways: a gateway may be configured for them all.
    elsewhere: set[int] = field(default_factory=set)
    # Measured capacities that no beam can have.
    implausible: int = 0


@dataclass(frozen=True)
class Sorter:
    """Sorts the reports that a gateway posts, given where the known terminals are.

    An operator speaks for every terminal, whichever gateway it is at.
    """

    gateway: int
    received_ms: int
    attachments: Mapping[int, Attachment]
    by_operator: bool = False

    def sort(self, entry: messages.ReportEntry, into: Sorted) -> None:
        """Add one report to what was sorted, or change nothing.

        Raises:
            RefusedError: It is not taken in.
        """
        if entry.node != self.gateway and entry.node not in self.attachments:
            raise RefusedError(f"there is no terminal {entry.node}")
        try:
            match entry.report:
                case messages.StatusReport():
                    self._status(entry, entry.report, into)
                case messages.PositionReport():
                    self._position(entry, entry.report, into)
                case messages.AnnouncementReport():
                    self._announcement(entry, entry.report, into)
                case messages.BlockageReport():
                    self._blockage(entry, entry.report, into)
                case messages.PlanReport():
                    self._plan(entry, entry.report, into)
                case messages.SettingsReport():
                    self._settings(entry, entry.report, into)
        except (times.TimeError, AnnouncementError) as error:
            raise RefusedError(str(error)) from error

    def _status(
        self, entry: messages.ReportEntry, status: messages.StatusReport, into: Sorted
    ) -> None:
        time_ms = times.of_status(status, entry.age_ms, self.received_ms)
        self._is_here(entry.node, time_ms)
        links: dict[int, messages.LinkReport] = {}
        of_terminals: defaultdict[int, list[messages.LinkReport]] = defaultdict(list)
        strangers, elsewhere = set(), set()
        for link in status.links:
            self._may_speak_of(entry.node, link.terminal, link.direction)
            if link.terminal not in self.attachments:
                strangers.add(link.terminal)
                continue
            if not self._allows(link.terminal, time_ms):
                elsewhere.add(link.terminal)
                continue
            of_terminals[link.terminal].append(link)
            # Of several paths to a terminal, the beam's is the one that follows its plan.
            other = links.get(link.terminal)
            if other is None or (other.plan_version is None and link.plan_version is not None):
                links[link.terminal] = link
        into.strangers |= strangers
        into.elsewhere |= elsewhere
        if status.node is not None:
            into.nodes.append(self._node(entry.node, status.node, time_ms))
        for link in links.values():
            if link.measured is not None and not link.measured.is_plausible:
                into.implausible += 1
            paths = of_terminals[link.terminal]
            others = [one for one in paths if one is not link]
            into.states.append(self._state(entry.node, status, link, others, time_ms))
            into.counts.append(_count(entry.node, status, link, time_ms))
            is_up = {one.path: one.state == "up" for one in paths}
            into.paths[link.terminal, link.direction, time_ms] = Paths(time_ms, is_up)

    def _node(self, node: int, said: messages.NodeReport, time_ms: int) -> NodeReport:
        is_gateway = node == self.gateway
        return NodeReport(
            node=node,
            role="gateway" if is_gateway else "terminal",
            terminal=None if is_gateway else node,
            version=said.version,
            certificate_end_ms=said.certificate_end_ms,
            time_ms=time_ms,
        )

    def _state(
        self,
        node: int,
        status: messages.StatusReport,
        link: messages.LinkReport,
        others: Sequence[messages.LinkReport],
        time_ms: int,
    ) -> LinkState:
        return LinkState(
            terminal=link.terminal,
            link=link.direction,
            node=node,
            incarnation=status.incarnation,
            uptime_ms=status.uptime_ms,
            time_ms=time_ms,
            received_ms=self.received_ms,
            gateway=self.gateway,
            path=link.path,
            state=link.state,
            offered_bytes=link.offered_bytes,
            sent_bytes=link.sent_bytes,
            backlogged_bytes=link.backlogged_bytes,
            streams=link.streams,
            rate_bps=link.rate_bps,
            plan=link.plan_version,
            **_carries(link),
            clock_offset_ms=status.clock_offset_ms,
            synchronised=status.synchronised,
            figures=_figures(link, others),
        )

    def _position(
        self, entry: messages.ReportEntry, said: messages.PositionReport, into: Sorted
    ) -> None:
        self._is_terminal(entry.node)
        time_ms, differ = times.of_position(said, entry.age_ms, self.received_ms)
        self._is_here(entry.node, time_ms)
        into.positions.append(
            Position(
                terminal=entry.node,
                time_ms=time_ms,
                longitude=said.longitude,
                latitude=said.latitude,
                speed_mps=said.speed_mps,
                heading_deg=said.heading_deg,
                altitude_m=said.altitude_m,
                accuracy_m=said.accuracy_m,
                gnss_time_ms=said.gnss_time_ms,
                node_time_ms=said.node_time_ms,
                received_ms=self.received_ms,
                clocks_differ=differ,
            )
        )

    def _announcement(
        self, entry: messages.ReportEntry, said: messages.AnnouncementReport, into: Sorted
    ) -> None:
        self._is_terminal(entry.node)
        announced_ms = times.checked(said.announced_ms, self.received_ms)
        self._is_here(entry.node, announced_ms)
        announcement = Announcement(
            announced_ms,
            said.entry_ms,
            said.duration_ms,
            said.confidence,
            said.obstruction,
        )
        into.announcements.append(Announced(entry.node, announcement, self.received_ms))

    def _blockage(
        self, entry: messages.ReportEntry, seen: messages.BlockageReport, into: Sorted
    ) -> None:
        self._may_speak_of(entry.node, seen.terminal, seen.direction)
        self._is_terminal(seen.terminal)
        self._is_here(seen.terminal, times.checked(seen.entry_ms, self.received_ms))
        if seen.exit_ms is not None:
            times.checked(seen.exit_ms, self.received_ms)
            if seen.exit_ms < seen.entry_ms:
                raise RefusedError("the blockage ends before it begins")
        into.blockages.append(
            Observed(
                terminal=seen.terminal,
                link=seen.direction,
                path=seen.path,
                entry_ms=seen.entry_ms,
                exit_ms=seen.exit_ms,
                exit_reported=seen.exit_ms is not None,
                source=seen.source,
                received_ms=self.received_ms,
                unheard=seen.unheard,
            )
        )

    def _plan(self, entry: messages.ReportEntry, taken: messages.PlanReport, into: Sorted) -> None:
        own = None if entry.node == self.gateway else entry.node
        if taken.terminal != own:
            raise RefusedError(f"node {entry.node} speaks for {taken.terminal}")
        self._is_here(entry.node, times.checked(taken.applied_ms, self.received_ms))
        into.acknowledgements.append(
            Acknowledgement(taken.beam, Link(taken.link), taken.plan, entry.node, taken.applied_ms)
        )

    def _settings(
        self, entry: messages.ReportEntry, said: messages.SettingsReport, into: Sorted
    ) -> None:
        by_gateway = entry.node == self.gateway
        if not by_gateway:
            self._is_terminal(entry.node)
            self._is_here(entry.node, max(0, self.received_ms - entry.age_ms))
        by_applied: ReportedState = "confirmed" if said.applied else "refused"
        state = said.state or by_applied
        into.settings.append(
            Reported(entry.node, said.settings, state, said.reason, self.received_ms, by_gateway)
        )

    def _may_speak_of(self, node: int, terminal: int, direction: str) -> None:
        """Check that a node sends on a link: a gateway forward, a terminal on its return link."""
        if node == self.gateway:
            if direction != "forward":
                raise RefusedError(f"gateway {node} does not send on terminal {terminal}'s return")
        elif terminal != node or direction != "return":
            raise RefusedError(f"terminal {node} speaks of terminal {terminal}'s {direction} link")

    def _allows(self, terminal: int, at_ms: int) -> bool:
        return self.by_operator or self.attachments[terminal].allows(self.gateway, at_ms)

    def _is_here(self, node: int, at_ms: int) -> None:
        """Check that a terminal is, or was at a time, at the gateway that reports for it."""
        if node != self.gateway and not self._allows(node, at_ms):
            where = self.attachments[node].serving
            raise RefusedError(f"terminal {node} is at gateway {where}, not {self.gateway}")

    def _is_terminal(self, node: int) -> None:
        if node not in self.attachments:
            raise RefusedError(f"there is no terminal {node}")


def _count(
    node: int, status: messages.StatusReport, link: messages.LinkReport, time_ms: int
) -> Count:
    return Count(
        terminal=link.terminal,
        link=link.direction,
        node=node,
        incarnation=status.incarnation,
        path=link.path,
        uptime_ms=status.uptime_ms,
        time_ms=time_ms,
        sent_bytes=link.sent_bytes,
        offered_bytes=link.offered_bytes,
        blocked=link.state != "up",
        **_carries(link),
    )


def _figures(link: messages.LinkReport, others: Sequence[messages.LinkReport]) -> str | None:
    """Return the figures of a link that plans do not use, and its other paths, as JSON."""
    if link.figures is None:
        return None
    if not others:
        text = link.figures.model_dump_json(exclude_none=True)
        if text.isascii():
            # The usual case: eight classes have no more bytes.
            return text
    known = link.figures.model_dump(exclude_none=True)
    known["classes"] = _first(known["classes"])
    if others:
        listed = _first(map(_of_path, others[:MOST_OTHER_PATHS]))
        known["other_paths"] = listed
        if len(listed) < len(others):
            known["unlisted_paths"] = len(others) - len(listed)
    return json.dumps(known)


def _first(many: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first ones, up to the size limit of a list."""
    found, room = [], _MOST_LISTED_BYTES
    for one in many:
        room -= len(json.dumps(one))
        if room < 0:
            break
        found.append(one)
    return found


def _of_path(link: messages.LinkReport) -> dict[str, Any]:
    """Return a path that is not the beam's own, as it is shown."""
    shown = {
        "path": link.path,
        "state": link.state,
        "sent_bytes": link.sent_bytes,
        "rate_bps": link.rate_bps,
        "capacity_bps": _carries(link)["capacity_bps"],
    }
    if link.figures is not None:
        shown |= link.figures.model_dump(include={"rtt_ms", "queue_ms", "loss"})
    return {name: value for name, value in shown.items() if value is not None}


def _carries(link: messages.LinkReport) -> Carries:
    """Return the capacity of a link, as set or measured at its node."""
    measured = link.measured
    if measured is not None and not measured.is_plausible:
        measured = None
    return {
        "efficiency": 1.0 if link.efficiency is None else link.efficiency,
        "efficiency_told": link.efficiency is not None,
        "capacity_bps": None if measured is None else measured.capacity_bps,
        "capacity_reason": None if measured is None else measured.reason,
    }
