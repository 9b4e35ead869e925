"""The API's models.

Times are UTC, RFC 3339, kept to the millisecond; rates bit/s; positions WGS 84 in degrees; speeds
m/s; headings degrees from true north.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, field_serializer

from underpass_control.http.footprint import Footprint
from underpass_control.instants import rfc3339
from underpass_control.opensand.ncc import ncc_address
from underpass_control.opensand.request import MOST_ST_ID
from underpass_control.storage.tags import LONGEST_TAG, MOST_TAGS
from underpass_control.validation import ID, ONE_LINE, VISIBLE_ASCII, worded

# JSON numbers are exact up to here.
MOST_BPS = 1_000_000_000_000
MOST_NODE = 2**32 - 2
MOST_BATCH = 10_000
MOST_PAGE = 1_000
# A list's key is a name of at most 128 characters, perhaps with some numbers before it. In a cursor
# each character takes up to four bytes, and three bytes take four characters.
MOST_CURSOR = 1_000
_FIRST_YEAR, LAST_YEAR = 1970, 9000

Rate = Annotated[int, Field(ge=0, le=MOST_BPS)]
NodeNumber = Annotated[int, Field(ge=1, le=MOST_NODE)]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=ONE_LINE)]
BeamId = Annotated[str, Field(pattern=ID)]
Tag = Annotated[
    str,
    Field(
        max_length=LONGEST_TAG,
        pattern=worded(
            r"^[^\s;,\x00-\x1f\x7f]([^;,\x00-\x1f\x7f]*[^\s;,\x00-\x1f\x7f])?$",
            "have no ; and no , and begin and end with a visible character",
        ),
    ),
]
# Visible ASCII, since it is a version and compared without changes.
SoftwareVersion = Annotated[str, Field(min_length=1, max_length=64, pattern=VISIBLE_ASCII)]
SatelliteName = Annotated[
    str,
    Field(pattern=worded(r"^[A-Za-z0-9._-]{1,32}$", "have 1 to 32 of A-Z, a-z, 0-9, ., _ and -")),
]
TenantId = Annotated[str, Field(pattern=ID)]
Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
Speed = Annotated[float, Field(ge=0, le=400, allow_inf_nan=False)]
Heading = Annotated[float, Field(ge=0, le=360, allow_inf_nan=False)]
Altitude = Annotated[float, Field(ge=-1_000, le=30_000, allow_inf_nan=False)]
Accuracy = Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)]


def _counted(moment: datetime) -> datetime:
    # Times outside of these years could not be shown in UTC.
    if not _FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"the year is not within {_FIRST_YEAR} and {LAST_YEAR}")
    return moment


Instant = Annotated[AwareDatetime, AfterValidator(_counted)]


def _ncc(url: str) -> str:
    ncc_address(url)
    return url


Ncc = Annotated[
    str,
    Field(
        max_length=200,
        pattern=worded(
            r"^opensand://[A-Za-z0-9._:\[\]-]+$", "be opensand://HOST or opensand://HOST:PORT"
        ),
    ),
    AfterValidator(_ncc),
]


class Model(BaseModel):
    """What all have in common: no member may be misspelt, and nothing is guessed."""

    model_config = ConfigDict(extra="forbid")

    @field_serializer("*", when_used="json", check_fields=False)
    def _instants(self, value: Any) -> Any:
        return rfc3339(value) if isinstance(value, datetime) else value


class BeamBody(Model):
    """A beam, as it is set."""

    name: Name
    forward_capacity_bps: Rate
    return_capacity_bps: Rate
    one_way_delay_ms: Annotated[int, Field(ge=0, le=10_000)] = 300
    # The unit in which fair shares are equal: with symbols, a fade costs only its terminal; with
    # bits, it costs all terminals.
    fair_share: Literal["symbols", "bits"] = "symbols"
    # The OpenSAND NCC that allocates the return link.
    opensand: Ncc | None = None
    # The satellite that its terminals use; obstructions of other satellites do not count.
    satellite: SatelliteName | None = None
    # The area in which it is received, for display only.
    footprint: Footprint | None = None


class Beam(BeamBody):
    """A beam."""

    id: BeamId


class BeamList(Model):
    """A page of beams."""

    beams: list[Beam]
    next: str | None = None


class TerminalBody(Model):
    """A terminal, as it is set. Rates are those of its part of the beam."""

    beam: BeamId
    name: Name
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    forward_minimum_bps: Rate = 0
    forward_maximum_bps: Rate | None = None
    return_minimum_bps: Rate = 0
    return_maximum_bps: Rate | None = None
    # The gateway that serves it; by default, the one that its reports come by.
    gateway: NodeNumber | None = None
    # The tenant that owns the vehicle.
    tenant: TenantId = "default"
    # Its satellite terminal id at the beam's NCC.
    opensand_id: Annotated[int, Field(ge=0, le=MOST_ST_ID)] | None = None


class TagsBody(Model):
    """Words that a terminal is grouped by."""

    tags: Annotated[list[Tag], Field(max_length=MOST_TAGS)]


class Terminal(TerminalBody):
    """A terminal, named by its ipn node number."""

    node: NodeNumber
    # In order.
    tags: list[Tag] = []
    # The gateway that its reports come by.
    heard_by: NodeNumber | None = None


class TerminalList(Model):
    """A page of terminals."""

    terminals: list[Terminal]
    next: str | None = None


class PositionBody(Model):
    """A terminal's position at a time.

    `time` is the one that counts. Where both are known, `gnss_time` and `node_time` say what the
    receiver's and the node's clocks showed.
    """

    time: Instant
    longitude: Longitude
    latitude: Latitude
    speed_mps: Speed | None = None
    heading_deg: Heading | None = None
    altitude_m: Altitude | None = None
    accuracy_m: Accuracy | None = None
    gnss_time: Instant | None = None
    node_time: Instant | None = None


class PositionOfTerminal(PositionBody):
    """The same, with whose it is."""

    terminal: NodeNumber


class PositionBatch(Model):
    """Positions of any terminals, in any order; those already known change nothing."""

    positions: Annotated[list[PositionOfTerminal], Field(min_length=1, max_length=MOST_BATCH)]


class Position(PositionOfTerminal):
    """A stored position."""

    received: Instant
    # GNSS and node time are more than 2 s apart.
    clocks_differ: bool = False


class Track(Model):
    """A page of a terminal's positions, in order of time."""

    positions: list[Position]
    next: str | None = None


class NewestPositions(Model):
    """A page of terminals' newest positions, in order of terminals."""

    positions: list[Position]
    next: str | None = None


class Accepted(Model):
    """How many reports were taken in."""

    accepted: int


class Feature(Model):
    """A GeoJSON feature (RFC 7946)."""

    type: Literal["Feature"] = "Feature"
    geometry: dict[str, Any]
    properties: dict[str, Any]


class FeatureCollection(Model):
    """A page of GeoJSON features; `next` is a foreign member (RFC 7946, § 6.1)."""

    type: Literal["FeatureCollection"] = "FeatureCollection"
    features: list[Feature]
    next: str | None = None


class Page(Model):
    """Which page of a list."""

    limit: Annotated[int, Field(ge=1, le=MOST_PAGE)] = 100
    cursor: Annotated[str, Field(max_length=MOST_CURSOR)] | None = None


class TerminalQuery(Page):
    """Which terminals."""

    beam: BeamId | None = None
    tag: Tag | None = None


class NodeReport(Model):
    """What a node has last said of itself; without `reported`, it has said nothing yet."""

    node: NodeNumber
    role: Literal["terminal", "gateway"]
    version: SoftwareVersion | None = None
    # Absent without a certificate.
    certificate_end: AwareDatetime | None = None
    reported: Instant | None = None


class NodeQuery(Page):
    """Which nodes."""

    role: Literal["terminal", "gateway"] | None = None


class NodeList(Model):
    """A page of what nodes have said of themselves, in order of nodes and roles."""

    nodes: list[NodeReport]
    next: str | None = None


class TagCount(Model):
    """A tag, and how many terminals have it."""

    tag: Tag
    terminals: int


class TagList(Model):
    """A page of tags."""

    tags: list[TagCount]
    next: str | None = None


class TrackQuery(Page):
    """Which part of a track: from `since` to before `until`."""

    since: Instant | None = None
    until: Instant | None = None
    order: Literal["time", "newest"] = "time"


class PositionsQuery(TrackQuery):
    """Which part of a track, and how much of it.

    With `apart_s`, one report of each interval of so many seconds since the epoch: the first one in
    the order that is asked for.
    """

    apart_s: Annotated[int, Field(ge=1, le=86_400)] | None = None


class ClassFiguresShown(Model):
    """What streams of one class ask of a link; `streams` is absent where there are too many."""

    name: str
    streams: int | None = None
    backlogged_bytes: int


class OtherPathShown(Model):
    """A path to the same node that is not the beam's own."""

    path: str
    state: Literal["up", "blocked", "down"]
    sent_bytes: int
    rate_bps: int | None = None
    capacity_bps: int | None = None
    rtt_ms: int | None = None
    queue_ms: int | None = None
    loss: float | None = None


class LinkFiguresShown(Model):
    """What is known of a link beyond what plans go by."""

    # The smoothed round trip, queues included; absent while it is not known.
    rtt_ms: int | None = None
    queue_ms: int
    # Part of the packets that the link loses by itself.
    loss: float
    # The bundles that the sending node stores for the other end.
    stored_bundles: int
    stored_bytes: int
    # The classes with streams or a backlog.
    classes: list[ClassFiguresShown]
    # Absent where the beam's path is the only one.
    other_paths: list[OtherPathShown] | None = None
    # How many more there are; absent where all are listed.
    unlisted_paths: int | None = None


class LinkState(Model):
    """What a direction of a terminal's link does, as the node that sends on it has last said.

    Counts are since that node's start; `plan` is the version of the plan that it follows.
    """

    terminal: NodeNumber
    link: Literal["forward", "return"]
    state: Literal["up", "blocked", "down"]
    time: Instant
    received: Instant
    node: NodeNumber
    incarnation: int
    uptime_ms: int
    gateway: NodeNumber
    path: str
    offered_bytes: int
    sent_bytes: int
    backlogged_bytes: int
    streams: int
    rate_bps: int | None = None
    plan: int | None = None
    # Bits per unit of the beam's capacity in the present MODCOD, and whether a modem or an operator
    # set it.
    efficiency: float
    efficiency_told: bool
    # The measured capacity of the link, in bit/s of IP bytes, and the basis of that; absent until a
    # measurement has shown that it carries less than is allowed.
    capacity_bps: int | None = None
    capacity_reason: str | None = None
    # How far the node's clock is ahead of the service's, and whether the node's is synchronised.
    clock_offset_ms: int | None = None
    synchronised: bool
    # Absent from nodes of earlier versions.
    figures: LinkFiguresShown | None = None


class LinkList(Model):
    """A page of link states."""

    links: list[LinkState]
    next: str | None = None


class Carried(Model):
    """What a link was known to carry in 10 s from `start` on, by the last report of that time."""

    start: Instant
    link: Literal["forward", "return"]
    node: NodeNumber
    path: str
    time: Instant
    # As set by a modem or an operator.
    efficiency: float | None = None
    # As measured by its node, in bit/s of IP bytes, and the basis of that.
    capacity_bps: int | None = None
    capacity_reason: str | None = None


class CarriedList(Model):
    """A page of what a terminal's links were known to carry."""

    carried: list[Carried]
    next: str | None = None


class CarriedQuery(Page):
    """Which part of it: from `since` to before `until`, of one link or both."""

    link: Literal["forward", "return"] | None = None
    since: Instant | None = None
    until: Instant | None = None
    order: Literal["time", "newest"] = "time"


class LinkQuery(Page):
    """Which links."""

    beam: BeamId | None = None
    terminal: NodeNumber | None = None


class Blockage(Model):
    """A blockage that is expected (`predicted`), was (`passed`, `withdrawn`), or was `observed`.

    What was expected is as it was last before it came. What was observed names, by its `id`, the
    expectation that it fulfilled, and how much later than it that had entry and exit.
    """

    state: Literal["predicted", "passed", "withdrawn", "observed"]
    terminal: NodeNumber
    entry: Instant
    # Absent while it lasts.
    exit: Instant | None = None
    source: Literal["predicted", "announced", "plan", "modem", "operator", "probing"]
    id: int | None = None
    obstruction: str | None = None
    confidence: float | None = None
    # When it was first expected, and the time of the fix or announcement that it is based on.
    first: Instant | None = None
    based_on: Instant | None = None
    # The quantiles 0.1 and 0.9 of its entry and of its exit.
    entry_p10: Instant | None = None
    entry_p90: Instant | None = None
    exit_p10: Instant | None = None
    exit_p90: Instant | None = None
    link: Literal["forward", "return"] | None = None
    path: str | None = None
    predicted: int | None = None
    entry_error_ms: int | None = None
    exit_error_ms: int | None = None


class BlockageList(Model):
    """A page of blockages, in order of their entries."""

    blockages: list[Blockage]
    next: str | None = None


class AnnouncementBody(Model):
    """A blockage ahead that a terminal has recognised itself."""

    entry: Instant
    duration_ms: Annotated[int, Field(ge=1, le=3_600_000)]
    # 0 withdraws earlier announcements: it will not come.
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    # Without it, now.
    announced: Instant | None = None
    obstruction: Annotated[str, Field(min_length=1, max_length=128, pattern=ONE_LINE)] | None = None


class Announcement(AnnouncementBody):
    """An announcement, and whose it is."""

    terminal: NodeNumber
    received: Instant


class AnnouncementList(Model):
    """A page of a terminal's announcements, the latest first."""

    announcements: list[Announcement]
    next: str | None = None


class Route(Model):
    """The line that a terminal will drive: a LineString of GeoJSON (RFC 7946)."""

    type: Literal["LineString"]
    coordinates: Annotated[
        list[Annotated[list[float], Field(min_length=2, max_length=3)]],
        Field(min_length=2, max_length=10_000),
    ]


class Health(Model):
    """Whether the service runs, and for readiness what is amiss."""

    status: Literal["ok", "unready"]
    detail: str | None = None
