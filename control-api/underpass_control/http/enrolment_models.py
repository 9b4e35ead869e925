"""The API's models of enrolments and certificates."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from underpass_control.enrolment.configuration import LONGEST_CONFIGURATION
from underpass_control.enrolment.tokens import LONGEST_TOKEN
from underpass_control.http.models import Instant, Model, NodeNumber, Page
from underpass_control.validation import worded

_TOKEN = worded(rf"^upe_[A-Za-z0-9_-]{{1,{LONGEST_TOKEN - 4}}}$", "be an enrolment token, upe_...")
_PEM = worded(r"^[\x20-\x7e\r\n]+$", "be a certificate request in PEM")
_TEXT = worded(
    r"^[^\x00-\x08\x0b-\x1f\x7f]+$", "have no control characters except tabs and line feeds"
)

EnrolmentToken = Annotated[str, Field(pattern=_TOKEN)]
# PKCS #10.
CertificateRequest = Annotated[str, Field(min_length=1, max_length=8_192, pattern=_PEM)]


class EnrolmentBody(Model):
    """A node that may be enrolled."""

    node: NodeNumber
    # TOML, with `tls.pki_dir` in `node.state_dir`.
    configuration: Annotated[
        str, Field(min_length=1, max_length=LONGEST_CONFIGURATION, pattern=_TEXT)
    ]
    expires: Instant


class Enrolment(Model):
    """An enrolment, without its token and configuration."""

    id: int
    node: NodeNumber
    created: Instant
    expires: Instant
    revoked: Instant | None = None
    # When it was used, and the SHA-256 of the SubjectPublicKeyInfo of the key that used it.
    used: Instant | None = None
    key_sha256: str | None = None


class NewEnrolment(Enrolment):
    """An enrolment that has just been made: its token is not shown again."""

    token: EnrolmentToken


class EnrolmentsQuery(Page):
    """Which enrolments: of one node, or of all; the oldest or the newest first."""

    node: NodeNumber | None = None
    order: Literal["made", "newest"] = "made"


class EnrolmentList(Model):
    """A page of enrolments."""

    enrolments: list[Enrolment]
    next: str | None = None


class EnrolBody(Model):
    """A node's request, with the token of its enrolment."""

    token: EnrolmentToken
    request: CertificateRequest


class RenewBody(Model):
    """A node's request, signed by the key of its present certificate."""

    request: CertificateRequest


class PassedOnBody(RenewBody):
    """A terminal's request, as its gateway has got it through the hop."""

    node: NodeNumber


class Certified(Model):
    """A node's certificate, the authority's, and the revocation list: PEM each."""

    node: NodeNumber
    certificate: str
    authority: str
    revocations: str


class Enrolled(Certified):
    """What makes a bare node one of the fleet."""

    configuration: str


class Revoked(Model):
    """Serial numbers of certificates, hexadecimal."""

    revoked: list[str]


class ListedTerminal(Model):
    """A terminal as a hub's configuration has it: rates are in bit/s of IP bytes."""

    node: NodeNumber
    weight: int
    send_rate_bps: int | None = None
    receive_rate_bps: int | None = None


class TerminalListing(Model):
    """The terminals of a hub, by their numbers."""

    terminals: list[ListedTerminal]
