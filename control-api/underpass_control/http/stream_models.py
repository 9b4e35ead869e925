"""The API's models of terminals' streams."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from underpass_control.http.models import Instant, Model, NodeNumber
from underpass_control.questions import MOST_REFUSED, MOST_STREAMS

# The node that opens a stream chooses its number, up to 2^62.
_MOST_COUNT = 2**63 - 1
# Processes send each other a stream in one piece of less than 8,000 bytes, in which a character
# may take twelve: with these bounds it always fits.
_MOST_TARGET = 255 + len(":65535")
_MOST_NAME = 64
_MOST_PATHS = 4

Count = Annotated[int, Field(ge=0, le=_MOST_COUNT)]
Text = Annotated[str, Field(max_length=_MOST_NAME)]
QuestionId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class OpenStream(Model):
    """A proxied TCP connection or HTTP exchange of a terminal, as its gateway has it."""

    # A gateway of a later version may send more members.
    model_config = ConfigDict(extra="ignore")

    # Its name at the gateway's local API, beside the terminal's number.
    id: Count
    epoch: Count
    # Its destination as the client named it: `host:port`. Absent until the request to open it has
    # come, and once neither end uses it any more.
    target: Annotated[str, Field(max_length=_MOST_TARGET)] | None = None
    class_: Text = Field(alias="class")
    state: Literal["early", "open", "half-closed-local", "half-closed-remote", "draining"]
    # The paths by which its bytes may be sent to the terminal now, or only its last flow's path if
    # each flow has a chosen one; none while all are down or blocked.
    paths: Annotated[list[Text], Field(max_length=_MOST_PATHS)]
    age_ms: Count
    # Bytes sealed for the terminal; bytes that came from it and were given to the origin.
    forward_bytes: Count
    return_bytes: Count
    # The origin's bytes that wait to be sealed; the terminal's bytes that the origin has not read,
    # gaps included.
    waiting_bytes: Count
    unread_bytes: Count


class StreamsAnswer(Model):
    """A gateway's answer to a question: streams, the largest first, and how many there are."""

    model_config = ConfigDict(extra="ignore")

    question: QuestionId
    open: Count
    streams: Annotated[list[OpenStream], Field(max_length=MOST_STREAMS)]


class AnsweredQuestion(Model):
    """The question that an answer was passed on for."""

    question: str


class RefusedQuestions(Model):
    """Questions that a gateway will not answer, since too many wait already."""

    model_config = ConfigDict(extra="ignore")

    questions: Annotated[list[QuestionId], Field(min_length=1, max_length=MOST_REFUSED)]


class RefusalTaken(Model):
    """How many questions the refusal was passed on of."""

    refused: int


class StreamQuery(Model):
    """How many streams are wanted."""

    limit: Annotated[int, Field(ge=1, le=MOST_STREAMS)] = 100


class StreamList(Model):
    """The streams of a terminal at a moment: those that have carried most, and the count of all."""

    terminal: NodeNumber
    gateway: NodeNumber
    time: Instant
    open: int
    streams: list[OpenStream]
