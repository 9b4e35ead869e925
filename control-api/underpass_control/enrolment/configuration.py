"""The configurations that enrolled nodes get: TOML, made from a template for each node."""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Mapping

LONGEST_CONFIGURATION = 65_536
# A value without characters that could end a TOML string, and so add keys of its own.
_VALUE = re.compile(r"[^\x00-\x1f\x7f\"'\\]*")


class ConfigurationError(ValueError):
    """A configuration is not one for the node; the text says why."""


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with a value for each `${name}`.

    Raises:
        ConfigurationError: A name has no value, or a value has quotes or control characters.
    """
    for name, value in values.items():
        if not _VALUE.fullmatch(value):
            detail = f"{name} = {value!r}: quotes, backslashes and control characters are refused"
            raise ConfigurationError(detail)
    try:
        return string.Template(template).substitute(values)
    except KeyError as error:
        raise ConfigurationError(f"the template's ${{{error.args[0]}}} has no value") from error
    except ValueError as error:
        raise ConfigurationError(f"the template: {error} ($$ stands for a $)") from error


def check(configuration: str, node: int) -> None:
    """Check that a configuration is for a node, as far as that is possible here.

    Raises:
        ConfigurationError: It is not.
    """
    try:
        found = tomllib.loads(configuration)
    except (ValueError, RecursionError) as error:
        # For a number of thousands of digits the library raises an error that is not its own.
        raise ConfigurationError(f"it is no TOML: {error}") from error
    number = _member(found, "node", "number")
    if number != node:
        raise ConfigurationError(f"node.number is {number}, and the enrolment for node {node}")
    if not isinstance(_member(found, "tls", "pki_dir"), str):
        raise ConfigurationError("tls.pki_dir is missing: a folder in node.state_dir")


def _member(found: Mapping[str, object], table: str, key: str) -> object:
    inner = found.get(table)
    return inner.get(key) if isinstance(inner, dict) else None
