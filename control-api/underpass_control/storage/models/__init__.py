"""The tables, the same in SQLite and in PostgreSQL.

Times are integer milliseconds since the Unix epoch, rates bit/s, amounts bits, positions WGS 84 in
degrees, speeds m/s, headings degrees from true north.
"""

from underpass_control.storage.models.alerts import (
    Alert,
    AlertMessage,
    AlertPending,
    AlertRule,
    AlertTarget,
)
from underpass_control.storage.models.base import Base
from underpass_control.storage.models.blockages import (
    Announcement,
    Blockage,
    Obstruction,
    ObstructionCount,
    PredictedBlockage,
)
from underpass_control.storage.models.enrolments import Enrolment
from underpass_control.storage.models.interventions import Intervention
from underpass_control.storage.models.ledger import (
    LedgerEntry,
    LedgerLot,
    LedgerOpening,
    LedgerPosting,
    Settled,
    SettledUsage,
)
from underpass_control.storage.models.links import LinkState, LinkUsage
from underpass_control.storage.models.nodes import NodeReport
from underpass_control.storage.models.planning import Acknowledgement, CapacityStep, Lease, Plan
from underpass_control.storage.models.positions import PositionReport, RememberedDrive, Route
from underpass_control.storage.models.registry import Beam, Terminal, TerminalTag
from underpass_control.storage.models.rollouts import Rollout, RolloutTerminal
from underpass_control.storage.models.settings import GatewaySettings, TerminalSettings
from underpass_control.storage.models.slices import Slice
from underpass_control.storage.models.tiles import MapTile, Tileset
from underpass_control.storage.models.tokens import Token
from underpass_control.storage.models.users import AuditEntry, Tenant, User, UserSession

__all__ = [
    "Acknowledgement",
    "Alert",
    "AlertMessage",
    "AlertPending",
    "AlertRule",
    "AlertTarget",
    "Announcement",
    "AuditEntry",
    "Base",
    "Beam",
    "Blockage",
    "CapacityStep",
    "Enrolment",
    "GatewaySettings",
    "Intervention",
    "Lease",
    "LedgerEntry",
    "LedgerLot",
    "LedgerOpening",
    "LedgerPosting",
    "LinkState",
    "LinkUsage",
    "MapTile",
    "NodeReport",
    "Obstruction",
    "ObstructionCount",
    "Plan",
    "PositionReport",
    "PredictedBlockage",
    "RememberedDrive",
    "Rollout",
    "RolloutTerminal",
    "Route",
    "Settled",
    "SettledUsage",
    "Slice",
    "Tenant",
    "Terminal",
    "TerminalSettings",
    "TerminalTag",
    "Tileset",
    "Token",
    "User",
    "UserSession",
]
