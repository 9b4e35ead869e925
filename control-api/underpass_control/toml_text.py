"""Writes TOML, which the standard library only reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def toml_text(document: Mapping[str, object]) -> str:
    """Return `document` as TOML, a line per key; keys whose value is None are left out."""
    return "".join(
        f"{key} = {_value(value)}\n" for key, value in document.items() if value is not None
    )


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{key} = {_value(item)}" for key, item in value.items() if item is not None
        )
        return f"{{ {inner} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str | Path):
        return json.dumps(str(value))
    raise TypeError(f"{type(value).__name__} has no form in TOML")
