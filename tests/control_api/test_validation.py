"""What is wrong with input is said in plain English, for each wrong member."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from underpass_control.http.intervention_models import InterventionBody
from underpass_control.http.models import (
    BeamBody,
    PositionBatch,
    PositionBody,
    TagsBody,
    TerminalBody,
    TrackQuery,
)
from underpass_control.http.obstructions import ObstructionQuery
from underpass_control.http.setting_models import SettingsBody
from underpass_control.validation import faults, first_fault


def refused(model: type[BaseModel], given: object) -> ValidationError:
    """Return the error of a model that is given JSON, or a query of texts."""
    with pytest.raises(ValidationError) as caught:
        if issubclass(model, TrackQuery | ObstructionQuery):
            model.model_validate(given)
        else:
            text = given if isinstance(given, str) else json.dumps(given)
            model.model_validate_json(text, strict=True)
    return caught.value


TERMINAL = {"beam": "ku-1", "name": "Bus"}
POSITION = {"time": "2026-05-01T12:00:00Z", "latitude": 46.5}
BEAM = {"name": "Ku", "forward_capacity_bps": 1, "return_capacity_bps": 1}


@pytest.mark.parametrize(
    ("model", "given", "place", "reason"),
    [
        (TerminalBody, {"name": "Bus"}, "beam", "is missing"),
        (TerminalBody, {**TERMINAL, "weight": 0}, "weight", "must be at least 1"),
        (TerminalBody, {**TERMINAL, "weight": "1"}, "weight", "must be a whole number"),
        (TerminalBody, {**TERMINAL, "weight": 1.5}, "weight", "must be a whole number"),
        (TerminalBody, {**TERMINAL, "gateway": 2**32}, "gateway", "must be at most 4294967294"),
        (TerminalBody, {**TERMINAL, "name": ""}, "name", "must not be empty"),
        (TerminalBody, {**TERMINAL, "name": "x" * 201}, "name", "must have at most 200 characters"),
        (TerminalBody, {**TERMINAL, "name": "a\0b"}, "name", "must have no control characters"),
        (TerminalBody, {**TERMINAL, "name": 3}, "name", "must be a text"),
        (
            TerminalBody,
            {**TERMINAL, "beam": "KU 1"},
            "beam",
            "must have 1 to 64 of a-z, 0-9, - and _, and begin with one of a-z, 0-9",
        ),
        (TerminalBody, "[]", "", "must be an object, with members by name"),
        (TerminalBody, "{", "", "is no JSON: EOF while parsing an object at line 1 column 1"),
        (BeamBody, {**BEAM, "fair_share": "x"}, "fair_share", "must be 'symbols' or 'bits'"),
        (
            BeamBody,
            {**BEAM, "footprint": {"type": "Point"}},
            "footprint",
            "must have as 'type' one of 'Polygon', 'MultiPolygon'",
        ),
        (PositionBody, {**POSITION, "longitude": 181}, "longitude", "must be at most 180"),
        (TagsBody, {"tags": "east"}, "tags", "must be a list"),
        (TagsBody, {"tags": ["a"] * 11}, "tags", "must have at most 10 entries"),
        (PositionBatch, {"positions": []}, "positions", "must not be empty"),
        (TrackQuery, {"since": "noon"}, "since", "must be a time, such as 2026-05-01T12:00:00Z"),
        (
            TrackQuery,
            {"since": "2026-05-01T12:00:00"},
            "since",
            "must be a time with its time zone, such as 2026-05-01T12:00:00Z",
        ),
        (
            ObstructionQuery,
            {"bbox": "7,46,x"},
            "bbox",
            "must be four numbers: west,south,east,north",
        ),
        (
            SettingsBody,
            {"paths": [{"name": "lte", "neighbour": 2, "remote": "hub:4556"}]},
            "paths/0/remote",
            "must have an IPv4 or IPv6 address, such as 192.0.2.1",
        ),
        (
            InterventionBody,
            {"kind": "freeze", "until": "2100-01-01T00:00:00Z"},
            "",
            "a freeze needs beam",
        ),
    ],
)
def test_each_error_is_a_sentence(
    model: type[BaseModel], given: object, place: str, reason: str
) -> None:
    error = refused(model, given)
    (fault,) = faults(error, 20, model)
    assert ("/".join(map(str, fault.place)), fault.reason) == (place, reason)
    assert first_fault(error) == (f"{place}: {reason}" if place else reason)


def test_of_an_unknown_member_the_known_ones_are_named() -> None:
    wrong = {"classes": [{"name": "bulk", "wieght": 2}], "path": []}
    inner, outer = faults(refused(SettingsBody, wrong), 20, SettingsBody)
    assert inner.place == ("classes", 0, "wieght")
    assert inner.reason.startswith("is unknown: there are name, weight, policy, paths")
    assert outer.reason == "is unknown: there are classes, paths"
    # By the names that requests have.
    error = refused(InterventionBody, {"kind": "freeze", "form": 1})
    (fault,) = faults(error, 20, InterventionBody)
    assert "terminal, from, blockage" in fault.reason
    assert first_fault(refused(SettingsBody, wrong)).endswith("is unknown: leave it out")


class _Of(BaseModel):
    model_config = ConfigDict(extra="forbid")
    found: dict[str, Any] | None = None
    text: str = Field(default="", pattern="^a+$")
    raw: bytes = b""


def test_what_has_no_words_of_its_own_is_still_no_word_of_the_library() -> None:
    pattern, raw = faults(refused(_Of, {"text": "b", "raw": 3}), 20, _Of)
    assert pattern.reason == "must match ^a+$"
    assert "Input" not in raw.reason
    assert raw.reason


def test_the_first_ones_are_named() -> None:
    error = refused(PositionBatch, {"positions": [{}] * 100})
    assert error.error_count() > 20
    assert len(faults(error, 20)) == 20
