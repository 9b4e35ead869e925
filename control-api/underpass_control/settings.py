"""What an operator sets."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from underpass_control.alerts.mail import MailServer
    from underpass_control.oidc.configuration import Configuration
    from underpass_control.tracing import TracesSettings


@dataclass(frozen=True)
class Settings:
    """How the service goes about its work."""

    # Position reports, blockages and remembered drives older than this are deleted; None keeps
    # them for ever.
    keep_positions_s: float | None = 30 * 86_400.0
    # How often it is looked for them.
    prune_every_s: float = 600.0
    # What links carried, and what was counted of it, is deleted once older; None keeps it.
    keep_usage_s: float | None = 30 * 86_400.0
    # A settlement waits so long for reports that a blockage, or a lost way to the hub, holds up.
    settle_within_s: float = 120.0
    # Debts older than this are forgiven; None keeps them until they are repaid.
    forgive_after_s: float | None = 86_400.0
    # Plans that ended before this are deleted, but for the newest; None keeps them for ever.
    keep_plans_s: float | None = 2 * 86_400.0
    # Entries of the ledger that are older are deleted, and what they came to is kept; None keeps
    # them for ever.
    keep_ledger_s: float | None = 400 * 86_400.0
    # Entries of the log of changes that are older are deleted; None keeps them for ever.
    keep_audit_s: float | None = 400 * 86_400.0
    # A user who has asked nothing for so long, or has signed in so long ago, has to sign in again.
    session_idle_s: float = 8 * 3_600.0
    session_lasts_s: float = 7 * 86_400.0
    # The provider that users sign in by, beside or instead of passwords; None: there is none.
    provider: Configuration | None = None
    # Requests per second that one token may make, and four times as many at once.
    token_requests_per_s: float = 500.0
    # The same for all without a known token, by the address that they come from.
    address_requests_per_s: float = 50.0
    # The folder of the authority that signs nodes' certificates; without it none is enrolled.
    authority: Path | None = None
    # The program that works on it.
    underpass_program: str = "underpass"
    # What nodes know the service by when they are enrolled; None for the authority's certificate.
    enrolment_certificate: Path | None = None
    # For how long a node's certificate is good.
    certificate_days: int = 365
    # How often it is looked what is wrong by the rules of alerts.
    look_for_alerts_every_s: float = 5.0
    # How often it is looked how far rollouts are.
    advance_rollouts_every_s: float = 5.0
    # Networks that are not public and that webhooks of alerts may go to all the same.
    webhook_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    # Where mails of alerts are handed in; None: none are sent.
    mail_server: MailServer | None = None
    # Where traces go; None: none are made.
    traces: TracesSettings | None = None
    # Reverse proxies: they say which address a request comes from.
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
