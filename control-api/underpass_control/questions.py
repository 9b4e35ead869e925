"""Questions of operators to a gateway: which streams one of its terminals has.

Nothing of them is stored: the destinations of clients are shown to the operator, and forgotten. A
question is announced to all processes, since the gateway's stream of plans may be at any of them.
So is its answer, which the gateway may post to any of them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from underpass_control.storage.changes import Changes, listed

# Kinds of changes used only here; followers of events do not get them.
QUESTION, ANSWER = "question", "streams"
MOST_STREAMS = 200
_ID_BYTES = 8
# A gateway answers at once; the rest of this time is for the way there and back.
_ANSWERED_WITHIN_S = 4.0
# The most questions that a gateway refuses in one message.
MOST_REFUSED = 64
# Questions that wait to be sent on one stream, which may be busy with a plan. Each process has only
# a few in progress, so more can come only from many processes.
_MOST_WAITING = 256


class UnansweredError(Exception):
    """No answer has come; the text says why."""


class RefusedError(Exception):
    """The gateway has too many questions to answer; the text says so."""


@dataclass(frozen=True)
class Question:
    """Asks a gateway for the streams of one of its terminals, at most so many."""

    id: str
    gateway: int
    terminal: int
    limit: int


@dataclass(frozen=True)
class Answer:
    """Streams of a terminal as its gateway has them, and how many there are in all."""

    open: int
    streams: Sequence[Mapping[str, Any]]


class Inbox:
    """The questions that wait for a gateway's stream."""

    def __init__(self) -> None:
        self._waiting: list[Question] = []
        # Set while any wait.
        self.news = asyncio.Event()

    def put(self, question: Question) -> None:
        """Take one; if there are too many, drop the oldest, whose asker gives up first."""
        self._waiting = [*self._waiting[-_MOST_WAITING + 1 :], question]
        self.news.set()

    def take(self) -> list[Question]:
        """Return those that wait, the oldest first."""
        waiting, self._waiting = self._waiting, []
        self.news.clear()
        return waiting


@dataclass
class _Asked:
    question: Question
    # None: the gateway has refused.
    answer: asyncio.Future[Answer | None]
    streams: list[Mapping[str, Any]] = field(default_factory=list)


class Questions:
    """Questions in progress, and the streams of gateways that take them."""

    def __init__(self, changes: Changes, *, is_alone: bool) -> None:
        """Take whether there is no other process that could deliver a question."""
        self._changes = changes
        self._is_alone = is_alone
        # By id, those that are asked by this process.
        self._asked: dict[str, _Asked] = {}
        # By gateway, its streams at this process.
        self._inboxes: dict[int, list[Inbox]] = {}

    @contextmanager
    def inbox(self, gateway: int) -> Iterator[Inbox]:
        """Receive the questions to a gateway while its stream lasts."""
        inbox = Inbox()
        inboxes = self._inboxes.setdefault(gateway, [])
        inboxes.append(inbox)
        try:
            yield inbox
        finally:
            inboxes.remove(inbox)
            if not inboxes:
                del self._inboxes[gateway]

    async def ask(self, gateway: int, terminal: int, limit: int) -> Answer:
        """Ask a gateway for a terminal's streams.

        Raises:
            UnansweredError: It cannot be reached, or says nothing.
            RefusedError: It has too many questions to answer.
        """
        question = Question(secrets.token_hex(_ID_BYTES), gateway, terminal, limit)
        if self._is_alone and gateway not in self._inboxes:
            raise UnansweredError(f"gateway {gateway} does not follow its plans at present")
        async with self._waiting_for(question) as answer:
            async with self._changes.transaction() as (_, publish):
                publish({"kind": QUESTION, "question": vars(question)})
            try:
                async with asyncio.timeout(_ANSWERED_WITHIN_S):
                    answered = await answer
            except TimeoutError as error:
                detail = (
                    f"gateway {gateway} has not answered within {_ANSWERED_WITHIN_S:.0f} s: it is"
                    " out of reach, or of a version that knows no such question"
                )
                raise UnansweredError(detail) from error
        if answered is None:
            raise RefusedError(f"gateway {gateway} has too many questions to answer")
        return answered

    async def answer(
        self, gateway: int, question: str, streams: Sequence[Mapping[str, Any]], count: int
    ) -> None:
        """Pass a gateway's answer on to the process that asks."""
        named = {"question": question, "gateway": gateway}
        async with self._changes.transaction() as (_, publish):
            for part in listed(ANSWER, streams):
                publish({**part, **named})
            publish({"kind": ANSWER, ANSWER: [], **named, "open": count})

    async def refuse(self, gateway: int, questions: Sequence[str]) -> None:
        """Pass on a gateway's refusal of questions to the processes that ask."""
        async with self._changes.transaction() as (_, publish):
            for question in questions:
                named = {"question": question, "gateway": gateway}
                publish({"kind": ANSWER, ANSWER: [], **named, "refused": True})

    @asynccontextmanager
    async def _waiting_for(
        self, question: Question
    ) -> AsyncIterator[asyncio.Future[Answer | None]]:
        asked = _Asked(question, asyncio.get_running_loop().create_future())
        self._asked[question.id] = asked
        try:
            yield asked.answer
        finally:
            del self._asked[question.id]

    def on_change(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in a question or an answer; ignore other changes."""
        if kind == QUESTION:
            question = Question(**data["question"])
            for inbox in self._inboxes.get(question.gateway, []):
                inbox.put(question)
        elif kind == ANSWER:
            self._answered(data)

    def _answered(self, data: Mapping[str, Any]) -> None:
        asked = self._asked.get(data["question"])
        # Only the gateway that was asked may answer.
        if asked is None or asked.question.gateway != data["gateway"] or asked.answer.done():
            return
        if "refused" in data:
            asked.answer.set_result(None)
            return
        room = asked.question.limit - len(asked.streams)
        asked.streams.extend(data[ANSWER][:room])
        if "open" in data:
            asked.answer.set_result(Answer(data["open"], asked.streams))

    def on_missed(self) -> None:
        """Ignore missed changes: an asker whose answer was lost gets an error after its wait."""
