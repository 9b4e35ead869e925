"""The post of a gateway, and the reports in it, as `docs/control-protocol.md` specifies them.

Unlike elsewhere in the API, members that are not known are passed over: a node may be newer than
the service.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from underpass_control.http import models
from underpass_control.instants import milliseconds
from underpass_control.validation import ONE_LINE, faults

MOST_REPORTS = 1_000
# Links in one status: the terminals of one gateway.
_MOST_LINKS = 10_000
_MOST_COUNT = 2**63 - 1
_MOST_MS = 2**53
_MOST_TEXT = 128
_LAST_END_MS = 253_402_300_799_999

Count = Annotated[int, Field(ge=0, le=_MOST_COUNT)]
Milliseconds = Annotated[int, Field(ge=0, le=_MOST_MS)]
# A moment that the API can show again, however far off its clock is.
Moment = Annotated[
    int, Field(ge=0, le=milliseconds(datetime(models.LAST_YEAR, 12, 31, tzinfo=UTC)))
]
Offset = Annotated[int, Field(ge=-_MOST_MS, le=_MOST_MS)]
# Without control characters: PostgreSQL stores no NUL, and nobody wants the others.
Text = Annotated[str, Field(min_length=1, max_length=_MOST_TEXT, pattern=ONE_LINE)]
Direction = Literal["forward", "return"]


class Message(BaseModel):
    """What all have in common."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Report(Message):
    """What all reports have: their order among those of a node."""

    uptime_ms: Milliseconds
    incarnation: Count


class MeasuredReport(Message):
    """What a node has measured that a link carries, and what that goes back to."""

    # Rates that no beam has are passed over, not refused: a gateway's report is of many terminals.
    capacity_bps: Count
    # Later releases may have others.
    reason: Text

    @property
    def is_plausible(self) -> bool:
        """Whether a beam can have such a capacity."""
        return 0 < self.capacity_bps <= models.MOST_BPS


class ClassFigures(Message):
    """What streams of one class ask of a link."""

    name: Annotated[str, Field(min_length=1, max_length=32, pattern=ONE_LINE)]
    streams: Count | None = None
    backlogged_bytes: Count


class LinkFigures(Message):
    """What is known of a link beyond what plans go by."""

    rtt_ms: Milliseconds | None = None
    queue_ms: Milliseconds
    loss: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    stored_bundles: Count
    stored_bytes: Count
    classes: Annotated[list[ClassFigures], Field(max_length=8)]


class LinkReport(Message):
    """One direction of a terminal's link, as the node that sends on it sees it."""

    terminal: models.NodeNumber
    path: Text
    direction: Direction
    state: Literal["up", "blocked", "down"]
    offered_bytes: Count
    backlogged_bytes: Count
    sent_bytes: Count
    streams: Count
    rate_bps: Count | None = None
    plan_version: Count | None = None
    # As a modem or an operator has set it.
    efficiency: Annotated[float, Field(ge=0.001, le=1_000, allow_inf_nan=False)] | None = None
    measured: MeasuredReport | None = None
    figures: LinkFigures | None = None


class ProofReport(Message):
    """A terminal's word that it is at a gateway, with a MAC made with its own token."""

    gateway: models.NodeNumber
    time_ms: Milliseconds
    mac: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class NodeReport(Message):
    """What a node says of itself."""

    version: models.SoftwareVersion
    # No certificate ends after the year 9999 (RFC 5280, § 4.1.2.5).
    certificate_end_ms: Annotated[int, Field(ge=0, le=_LAST_END_MS)] | None = None


class StatusReport(Report):
    """What a node's links do."""

    kind: Literal["status"]
    # As it seldom changes, it is in few reports.
    node: NodeReport | None = None
    # Made by a terminal: where it is.
    proof: ProofReport | None = None
    time_ms: Milliseconds | None = None
    clock_offset_ms: Offset | None = None
    synchronised: bool = False
    links: Annotated[list[LinkReport], Field(max_length=_MOST_LINKS)]


class PositionReport(Report):
    """Where a terminal is."""

    kind: Literal["position"]
    longitude: models.Longitude
    latitude: models.Latitude
    altitude_m: models.Altitude | None = None
    speed_mps: models.Speed | None = None
    heading_deg: models.Heading | None = None
    accuracy_m: models.Accuracy | None = None
    gnss_time_ms: Moment | None = None
    node_time_ms: Moment | None = None
    synchronised: bool


class AnnouncementReport(Report):
    """A blockage ahead that a terminal has recognised itself."""

    kind: Literal["announcement"]
    announced_ms: Milliseconds
    entry_ms: Milliseconds
    duration_ms: Milliseconds
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    obstruction: Text | None = None


class BlockageReport(Report):
    """A blockage that a node has observed; again, with its exit, once it is over."""

    kind: Literal["blockage"]
    terminal: models.NodeNumber
    path: Text
    direction: Direction
    entry_ms: Milliseconds
    exit_ms: Milliseconds | None = None
    source: Literal["plan", "modem", "operator", "probing"]
    # The node has not heard its peer since its process began, so an earlier process may have
    # reported the same blockage.
    unheard: bool = False


class PlanReport(Report):
    """A plan that a node has taken over."""

    kind: Literal["plan"]
    beam: models.BeamId
    link: Direction
    plan: Count
    applied_ms: Milliseconds
    terminal: models.NodeNumber | None = None


class SettingsReport(Report):
    """What has become of settings that a terminal was sent."""

    kind: Literal["settings"]
    settings: Milliseconds
    # Else all is as it was before.
    applied: bool
    # Nodes of earlier versions have no trial, and do not say it.
    state: Literal["trial", "confirmed", "rolled-back", "refused"] | None = None
    reason: Annotated[str, Field(max_length=1_000, pattern=ONE_LINE)] | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> SettingsReport:
        if self.state is not None and self.applied != (self.state in ("trial", "confirmed")):
            raise ValueError(f"settings that are {self.state} contradict applied={self.applied}")
        return self


AnyReport = Annotated[
    StatusReport
    | PositionReport
    | AnnouncementReport
    | BlockageReport
    | PlanReport
    | SettingsReport,
    Field(discriminator="kind"),
]


class ReportEntry(Message):
    """A report, whose it is, and how long ago it was made when the post was sent."""

    node: models.NodeNumber
    age_ms: Milliseconds
    report: AnyReport


_ENTRY: TypeAdapter[ReportEntry] = TypeAdapter(ReportEntry)


class _AsEntry:
    """Describes as an entry what is read as one only later, each by itself."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(ReportEntry.__pydantic_core_schema__)


class ReportPost(Message):
    """Reports that a gateway posts: each is taken in, or refused, by itself."""

    version: Literal[1]
    node: models.NodeNumber
    sent_ms: Milliseconds
    reports: Annotated[
        list[Annotated[Any, _AsEntry()]],
        Field(max_length=MOST_REPORTS),
    ]


class EntryError(ValueError):
    """An entry that is none; the text says what is wrong with it."""


def entry(document: object) -> ReportEntry:
    """Read an entry of a post.

    Raises:
        EntryError: It is none.
    """
    try:
        return _ENTRY.validate_python(document)
    except ValidationError as error:
        (one,) = faults(error, 1)
        place = "/".join(str(part)[:_MOST_TEXT] for part in one.place)
        raise EntryError(f"{place or 'the entry'}: {one.reason}"[:300]) from error
