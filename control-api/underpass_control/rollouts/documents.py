"""Documents of settings: laid over each other, and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]

# As a terminal has it without anything from afar.
NOTHING: Document = {"class": [], "path": []}
_PARTS = ("class", "path", "terminal")
# By which key the entries of a list are told apart.
_NAMED_BY = ("name", "node", "listener")


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose value differs, as `class.bulk.weight`, and its values; None: it is not set."""

    key: str
    before: Any
    after: Any


def differences(before: Document, after: Document) -> list[Difference]:
    """Return the keys in which two documents differ, in order.

    Entries are compared by their names, so their order makes no difference.
    """
    was, is_ = _keys(before), _keys(after)
    return [
        Difference(".".join(place), was.get(place), is_.get(place))
        for place in sorted(was.keys() | is_.keys())
        if was.get(place) != is_.get(place)
    ]


def _keys(document: Document) -> dict[tuple[str, ...], Any]:
    return {
        place: value
        for part in _PARTS
        if document.get(part)
        for place, value in _leaves(document[part], (part,))
    }


def _leaves(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a value's keys, at any depth, with what each is set to."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        for entry in value:
            named = next(key for key in _NAMED_BY if key in entry)
            rest = {key: one for key, one in entry.items() if key != named}
            yield from _leaves(rest, (*place, str(entry[named])))
    elif isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _leaves(one, (*place, key))
    else:
        yield place, value


def laid_over(before: Document, change: Document) -> dict[str, Any]:
    """Return settings with a change laid over them.

    Keys of the change replace those of the entry of the same name; all others stay.
    """
    return {part: _entries(before[part], change[part]) for part in ("class", "path")}


def _entries(before: list[Any], change: list[Any]) -> list[dict[str, Any]]:
    laid = {one["name"]: dict(one) for one in before}
    for one in change:
        laid[one["name"]] = {**laid.get(one["name"], {}), **one}
    return list(laid.values())
