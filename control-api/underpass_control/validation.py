"""What is wrong with input that a model refuses, in plain English.

pydantic's own messages are in words of Python and of its own. Callers of the API, users of the
command line and authors of files get a sentence for each wrong member instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

_A_TIME = "such as 2026-05-01T12:00:00Z"
_WHOLE = "must be a whole number"
_NUMBER = "must be a number"
_SWITCH = "must be true or false"
_LIST = "must be a list"
_OBJECT = "must be an object, with members by name"
_TIME = f"must be a time, {_A_TIME}"
# By pydantic's name of the error; `{}` is filled from the error's context.
_REASONS = {
    "missing": "is missing",
    "json_invalid": "is no JSON: {error}",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE + " of fewer digits",
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "must be a finite number",
    "string_type": "must be a text",
    "string_unicode": "must be a text in UTF-8",
    "bool_type": _SWITCH,
    "bool_parsing": _SWITCH,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "datetime_type": _TIME,
    "datetime_parsing": _TIME,
    "datetime_from_date_parsing": _TIME,
    "datetime_object_invalid": _TIME,
    "timezone_aware": f"must be a time with its time zone, {_A_TIME}",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
    "union_tag_not_found": "needs the member {discriminator}",
    "union_tag_invalid": "must have as {discriminator} one of {expected_tags}",
}
# By pattern.
_IN_WORDS: dict[str, str] = {}


@dataclass(frozen=True)
class Fault:
    """A wrong member of an input.

    Attributes:
        kind: pydantic's name of the error.
        place: the names and indices that lead to the member.
        reason: what is wrong with it, or what is allowed.
    """

    kind: str
    place: tuple[int | str, ...]
    reason: str


def worded(pattern: str, allowed: str) -> str:
    """Return a pattern for a model's text; `allowed` says in words what such a text must be."""
    _IN_WORDS[pattern] = allowed
    return pattern


# PostgreSQL stores no NUL, and the other control characters have no use in a text of one line.
ONE_LINE = worded(r"^[^\x00-\x1f\x7f]+$", "have no control characters")
ID = worded(
    r"^[a-z0-9][a-z0-9_-]{0,63}$",
    "have 1 to 64 of a-z, 0-9, - and _, and begin with one of a-z, 0-9",
)
VISIBLE_ASCII = worded(r"^[\x21-\x7e]+$", "have visible ASCII characters only")


def faults(
    error: ValidationError, most: int, model: type[BaseModel] | None = None
) -> Sequence[Fault]:
    """Return the first faults, at most so many; `model` is what has refused the input."""
    found = error.errors(include_url=False, include_input=False)
    return [Fault(one["type"], one["loc"], _reason(one, model)) for one in found[:most]]


def first_fault(error: ValidationError) -> str:
    """Return the place of the first fault, if it is not the whole, and what is wrong with it."""
    (one,) = faults(error, 1)
    place = "/".join(map(str, one.place))
    return f"{place}: {one.reason}" if place else one.reason


def _reason(error: Any, model: type[BaseModel] | None) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        known = [] if model is None else _members(model, error["loc"][:-1])
        return f"is unknown: there are {', '.join(known)}" if known else "is unknown: leave it out"
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        return f"must {_IN_WORDS[pattern]}" if pattern in _IN_WORDS else f"must match {pattern}"
    if context.get("min_length") == 1:
        return "must not be empty"
    if kind in _REASONS:
        return _REASONS[kind].format_map({name: _plain(one) for name, one in context.items()})
    text: str = error["msg"]
    return text.replace("Input should", "must")


def _plain(value: object) -> object:
    """Return a bound as people write it: 180, not 180.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _members(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Return the members that there are at a place; none if that depends on the input."""
    for part in place:
        if isinstance(part, str):
            fields = model.model_fields.items()
            annotations = [one.annotation for name, one in fields if (one.alias or name) == part]
            models = [found for one in annotations for found in _models(one)]
            if len(models) != 1:
                return []
            model = models[0]
    return [one.alias or name for name, one in model.model_fields.items()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if get_origin(annotation) is not None:
        for part in get_args(annotation):
            yield from _models(part)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
