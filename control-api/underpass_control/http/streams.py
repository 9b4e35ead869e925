"""The streams of a terminal, requested from its gateway on demand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from underpass_control.access.audit import Changed
from underpass_control.access.caller import Caller
from underpass_control.http import stream_models as models
from underpass_control.http.at_once import AtOnce
from underpass_control.http.callers import party_of
from underpass_control.http.endpoint import GATEWAYS, LARGE, OPERATORS, Answer, Call, Endpoint
from underpass_control.http.limits import Buckets, admit
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import moment_of
from underpass_control.questions import Questions, RefusedError, UnansweredError
from underpass_control.storage import attachments, registry
from underpass_control.storage.database import Database
from underpass_control.storage.models import Terminal

# Each question makes a gateway look through a terminal's streams: one caller may ask this many at
# once, and then one every 2 s.
_PER_S = 0.5
_BURST = 10
# Questions in progress: to all gateways, and to one, where a few more may wait.
_MOST_AT_ONCE = 50
_MOST_AT_GATEWAY = 24
# A gateway's answer or refusal goes to all processes of the service.
_ANSWERS_PER_S = 5.0
_ANSWERS_BURST = 100


class Streams:
    """The endpoints of terminals' streams."""

    def __init__(self, database: Database, questions: Questions) -> None:
        self._database = database
        self._questions = questions
        self._of_caller = Buckets(_PER_S, _BURST)
        self._of_gateway = Buckets(_ANSWERS_PER_S, _ANSWERS_BURST)
        self._refused_of_gateway = Buckets(_ANSWERS_PER_S, _ANSWERS_BURST)
        self._at_once = AtOnce(_MOST_AT_ONCE, "questions to gateways")
        # By gateway, while questions to it are in progress.
        self._at_gateways: dict[int, AtOnce] = {}

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        return [
            Endpoint(
                "GET",
                "/v1/terminals/{terminal}/streams",
                "Which streams a terminal has, as its gateway says now: where its clients go",
                self._get,
                OPERATORS,
                tenancy=Tenancy.VEHICLE,
                query=models.StreamQuery,
                answers=models.StreamList,
                problems=[HTTPStatus.CONFLICT, HTTPStatus.GATEWAY_TIMEOUT],
                recorded=True,
            ),
            Endpoint(
                "POST",
                "/v1/gateways/{gateway}/streams",
                "Answer what a gateway was asked by its stream of plans",
                self._post,
                GATEWAYS,
                body=models.StreamsAnswer,
                most=LARGE,
                answers=models.AnsweredQuestion,
            ),
            Endpoint(
                "POST",
                "/v1/gateways/{gateway}/streams/refused",
                "Say that too many questions wait for a gateway to answer these",
                self._refuse,
                GATEWAYS,
                body=models.RefusedQuestions,
                answers=models.RefusalTaken,
            ),
        ]

    async def _get(self, call: Call) -> Answer:
        terminal = call.path_number("terminal")
        async with self._database.reading() as connection:
            found = await attachments.of_terminals(connection, [terminal])
        if terminal not in found:
            raise _no_terminal(terminal)
        gateway = found[terminal].serving
        if gateway is None:
            raise Problem(HTTPStatus.CONFLICT, f"terminal {terminal} is at no gateway yet")
        admit(self._of_caller, call.known_caller.credential)
        try:
            with self._place_at(gateway, call.known_caller):
                limit = call.query(models.StreamQuery).limit
                answer = await self._questions.ask(gateway, terminal, limit)
        except UnansweredError as error:
            raise Problem(HTTPStatus.GATEWAY_TIMEOUT, str(error)) from error
        except RefusedError as error:
            later = {"Retry-After": "10"}
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers=later) from error
        await self._write_down(call, terminal)
        shown = models.StreamList(
            terminal=terminal,
            gateway=gateway,
            time=moment_of(self._database.clock.now_ms()),
            open=answer.open,
            streams=[models.OpenStream.model_validate(one) for one in answer.streams],
        )
        return Answer(shown, headers={"Cache-Control": "no-store"})

    @contextmanager
    def _place_at(self, gateway: int, caller: Caller) -> Iterator[None]:
        """Count a question to a gateway while it is in progress."""
        what = f"questions to gateway {gateway}"
        at_gateway = self._at_gateways.setdefault(gateway, AtOnce(_MOST_AT_GATEWAY, what))
        party = party_of(caller)
        try:
            with self._at_once.one(party), at_gateway.one(party):
                yield
        finally:
            if at_gateway.is_idle:
                self._at_gateways.pop(gateway, None)

    async def _write_down(self, call: Call, terminal: int) -> None:
        """Log who has seen a terminal's streams; their destinations are not stored."""
        async with self._database.transaction() as connection:
            owner = await registry.get(connection, Terminal, terminal)
            if owner is None:
                # Since the request it was deleted, or given to another tenant.
                raise _no_terminal(terminal)
            shown = Changed("show", f"/v1/terminals/{terminal}/streams", owner.tenant_id)
            await call.record(connection, shown)

    async def _post(self, call: Call) -> models.AnsweredQuestion:
        gateway = call.own_gateway()
        body = call.body(models.StreamsAnswer)
        admit(self._of_gateway, gateway)
        streams = [one.model_dump(by_alias=True, exclude_none=True) for one in body.streams]
        await self._questions.answer(gateway, body.question, streams, body.open)
        return models.AnsweredQuestion(question=body.question)

    async def _refuse(self, call: Call) -> models.RefusalTaken:
        gateway = call.own_gateway()
        body = call.body(models.RefusedQuestions)
        admit(self._refused_of_gateway, gateway)
        await self._questions.refuse(gateway, body.questions)
        return models.RefusalTaken(refused=len(body.questions))


def _no_terminal(terminal: int) -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}")
