"""The control service's manual pages and completions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from underpass_control.cli import app

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made(tmp_path_factory.mktemp("manual"))


def _made(folder: Path) -> Path:
    command: list[str | Path] = [sys.executable, "-B", _ROOT / "packaging" / "manual.py"]
    command += ["--version", "1.2", "--pages", folder, "--zsh", folder, "--fish", folder]
    subprocess.run(command, env={**os.environ, "SOURCE_DATE_EPOCH": "0"}, check=True)
    return folder


def test_every_command_has_a_page_with_its_options(made: Path) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        below = command.commands if isinstance(command, TyperGroup) else {}
        for page in (name, *(f"{name}-{verb}" for verb in below)):
            assert (made / f"underpass-control-{page}.1").exists(), page
    page = (made / "underpass-control-terminal-set.1").read_text()
    assert '"1970-01-01" "underpass-control 1.2"' in page
    assert r"\fB\-\-beam" in page
    assert r"\fBunderpass\-control\-terminal\fR(1)" in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_what_formats_pages_finds_nothing_wrong_with_them(made: Path) -> None:
    for page in made.glob("*.1"):
        command = ["groff", "-man", "-ww", "-Kutf8", "-Tutf8", "-P-c", "-P-b", "-P-u", str(page)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert not done.stderr, done.stderr
        assert "SYNOPSIS" in done.stdout


def test_completions_ask_the_program(made: Path) -> None:
    for name in ("_underpass-control", "underpass-control.fish"):
        assert "_UNDERPASS_CONTROL_COMPLETE=complete_" in (made / name).read_text()


def test_zsh_has_an_answer_when_it_reads_the_file_for_the_first_time(made: Path) -> None:
    lines = (made / "_underpass-control").read_text().splitlines()
    assert "_underpass_control_completion() {" in lines
    assert '  _underpass_control_completion "$@"' in lines[lines.index("}") :]


def test_they_are_the_same_each_time(made: Path, tmp_path: Path) -> None:
    again = _made(tmp_path)
    assert {one.name for one in again.iterdir()} == {one.name for one in made.iterdir()}
    for one in again.iterdir():
        assert one.read_bytes() == (made / one.name).read_bytes()
