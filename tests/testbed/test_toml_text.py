from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from underpass_control.toml_text import toml_text


def test_what_is_written_reads_back_the_same() -> None:
    document = {
        "text": 'quote " backslash \\ newline \n é',
        "number": 3,
        "fraction": 0.05,
        "flag": True,
        "list": ["a", "b"],
        "table": {"inner": {"deep": [1, 2]}},
        "tables": [{"name": "x"}, {"name": "y"}],
        "empty": [],
    }
    assert tomllib.loads(toml_text(document)) == document


def test_none_is_left_out_and_a_path_is_text() -> None:
    document = {"gone": None, "path": Path("/run/x"), "table": {"gone": None, "here": 1}}
    assert tomllib.loads(toml_text(document)) == {"path": "/run/x", "table": {"here": 1}}


def test_a_value_without_a_form_in_toml_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes has no form"):
        toml_text({"key": b"bytes"})
