"""Tables on the terminal show untrusted values safely."""

from __future__ import annotations

import pytest
from underpass_control.commands.tables import Column, print_table

TO = (Column("to", "target"), Column("paths", "paths"))


def test_what_a_name_has_in_it_does_nothing_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Colours, a title, the other direction of writing, a new line, half a surrogate pair.
    hostile = "a\x1b[31m\x1b]0;b\x07\x9b\u202ec\nd\ud83d:443"
    print_table(TO, [{"target": hostile, "paths": ["\x1b[2J"]}])
    shown = capsys.readouterr().out
    assert all(one.isprintable() for one in shown.replace("\n", ""))
    told = r"a\x1b[31m\x1b]0;b\x07\x9b\u202ec\nd\ud83d:443"
    assert told in shown
    assert r"\x1b[2J" in shown


def test_names_of_any_script_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(TO, [{"target": "münchen.example, 東京 :443", "paths": []}])
    assert "münchen.example, 東京 :443" in capsys.readouterr().out
