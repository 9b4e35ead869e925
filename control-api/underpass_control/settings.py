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

    # Position reports, blockages, remembered drives and counted passages older than this are
    # deleted; None keeps them for ever.
    keep_positions_s: float | None = 30 * 86_400.0
    # How often old rows are deleted.
    prune_every_s: float = 600.0
    # Usage of links, and the amounts settled from it, older than this are deleted; None keeps them.
    keep_usage_s: float | None = 30 * 86_400.0
    # How long a settlement waits for reports delayed by a blockage or a lost way to the hub.
    settle_within_s: float = 120.0
    # Debts older than this are forgiven; None keeps them until they are repaid.
    forgive_after_s: float | None = 86_400.0
    # Plans that ended before this are deleted, but for the newest; None keeps them for ever.
    keep_plans_s: float | None = 2 * 86_400.0
    # Older entries of the ledger are deleted, and their sums kept as opening lots; None keeps them
    # for ever.
    keep_ledger_s: float | None = 400 * 86_400.0
    # Entries of the log of changes that are older are deleted; None keeps them for ever.
    keep_audit_s: float | None = 400 * 86_400.0
    # A user has to sign in again after this time without a request, or since the last sign-in.
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
    # The program that uses that folder.
    underpass_program: str = "underpass"
    # The certificate by which enrolling nodes verify the service; None: the authority's.
    enrolment_certificate: Path | None = None
    # The validity of a node's certificate.
    certificate_days: int = 365
    # How often the rules of alerts are evaluated.
    look_for_alerts_every_s: float = 5.0
    # How often rollouts are advanced.
    advance_rollouts_every_s: float = 5.0
    # Non-public networks that webhooks of alerts may go to.
    webhook_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    # The mail server for alerts; None: no mails are sent.
    mail_server: MailServer | None = None
    # Where traces go; None: none are made.
    traces: TracesSettings | None = None
    # Reverse proxies: they say which address a request comes from.
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
