"""The posts of gateways with the reports of nodes."""

from __future__ import annotations

from http import HTTPStatus

from sqlalchemy.exc import IntegrityError

from underpass_control.clock import Clock
from underpass_control.http import models
from underpass_control.http.endpoint import GATEWAYS, LARGE, OPERATORS, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.reports.intake import Intake, TooManyError
from underpass_control.reports.messages import ReportPost
from underpass_control.roles import Role
from underpass_control.storage.positions import BusyError


class RefusedReport(models.Model):
    """A report that was not taken in: its place in the post, from 0, and why."""

    index: int
    detail: str


class Receipt(models.Model):
    """What became of a post, and when: by four times the gateway tells how far its clock is off."""

    accepted: int
    refused: list[RefusedReport]
    received_ms: int
    answered_ms: int


class Reports:
    """The endpoint of reports."""

    def __init__(self, intake: Intake, clock: Clock) -> None:
        self._intake = intake
        self._clock = clock

    def endpoints(self) -> list[Endpoint]:
        """Return it."""
        return [
            Endpoint(
                "POST",
                "/v1/reports",
                "Post reports of a gateway and its terminals: each is taken in, or refused, alone",
                self._post,
                GATEWAYS,
                body=ReportPost,
                most=LARGE,
                answers=Receipt,
                problems=[HTTPStatus.SERVICE_UNAVAILABLE],
            )
        ]

    async def _post(self, call: Call) -> Receipt:
        received_ms = self._clock.now_ms()
        post = call.body(ReportPost)
        caller = call.known_caller
        if caller.role is Role.GATEWAY and caller.node not in (None, post.node):
            detail = f"the token is that of node {caller.node}, not of {post.node}"
            raise Problem(HTTPStatus.FORBIDDEN, detail)
        try:
            refused = await self._intake.take(
                post, received_ms, by_operator=caller.role in OPERATORS
            )
        except TooManyError as error:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        except (BusyError, IntegrityError) as error:
            # A terminal that has been deleted meanwhile is refused the next time.
            busy = isinstance(error, BusyError)
            detail = str(error) if busy else "a terminal has just been deleted; send it again"
            later = {"Retry-After": "1"}
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=later) from error
        if call.trace is not None:
            call.trace.reports_of(_named(post))
        return Receipt(
            accepted=len(post.reports) - len(refused),
            refused=[RefusedReport(index=one.index, detail=one.detail) for one in refused],
            received_ms=received_ms,
            answered_ms=self._clock.now_ms(),
        )


def _named(post: ReportPost) -> set[int]:
    """Return the nodes that a post's reports name."""
    nodes = (document.get("node") for document in post.reports if isinstance(document, dict))
    return {node for node in nodes if isinstance(node, int)}
