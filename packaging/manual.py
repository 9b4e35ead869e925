"""Makes the manual pages and completions of `underpass-control` from its command line.

`underpass-control.1`, and a page such as `underpass-control-terminal-set.1` for each command below
it, so that they never differ from what the program takes; and `_underpass-control` of zsh and
`underpass-control.fish`, which ask the program itself, as the one of bash does.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.completion import get_completion_script
from typer.core import TyperGroup
from underpass_control.cli import app

_NAME = "underpass-control"
_COMPLETIONS = {"zsh": f"_{_NAME}", "fish": f"{_NAME}.fish"}
# zsh reads the file when it completes for the first time, and wants an answer then, too.
_AT_ONCE = """
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _underpass_control_completion "$@"
fi"""


def pages(version: str, seconds: int) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page; `seconds` since the Unix epoch are its date."""
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    top = typer.Context(typer.main.get_command(app), info_name=_NAME)
    for context in _commands(top):
        name = context.command_path.replace(" ", "-")
        head = f'.TH "{name.upper()}" "1" "{date}" "{_NAME} {version}" "User Commands"'
        yield f"{name}.1", "\n".join([head, *_sections(context), ""])


def _commands(context: typer.Context) -> Iterator[typer.Context]:
    yield context
    for one in _below(context):
        yield from _commands(one)


def _below(context: typer.Context) -> Iterator[typer.Context]:
    """Yield the commands of a group; those that people do not use are hidden."""
    group = context.command
    if not isinstance(group, TyperGroup):
        return
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        if one is not None and not one.hidden:
            yield typer.Context(one, parent=context, info_name=name)


def _summary(context: typer.Context) -> str:
    """Return the first line of what a command says of itself."""
    return (context.command.help or "").strip().split("\n", 1)[0]


def _sections(context: typer.Context) -> Iterator[str]:
    command = context.command
    told = (command.help or "").strip()
    yield ".SH NAME"
    name = context.command_path.replace(" ", "-")
    yield f"{_text(name)} \\- {_text(_summary(context).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    pieces = command.collect_usage_pieces(context)
    yield f"\\fB{_text(context.command_path)}\\fR {_text(' '.join(pieces))}"
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate(re.split(r"\n\s*\n", told)):
        if number:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))
    options = [one.get_help_record(context) for one in command.get_params(context)]
    if any(options):
        yield ".SH OPTIONS"
        yield from _listed([one for one in options if one])
    if isinstance(command, TyperGroup):
        yield ".SH COMMANDS"
        yield from _listed([(one.info_name or "", _summary(one)) for one in _below(context)])
    if context.parent is not None:
        yield ".SH SEE ALSO"
        yield f"\\fB{_text(context.parent.command_path.replace(' ', '-'))}\\fR(1)"


def _listed(entries: list[tuple[str, str]]) -> Iterator[str]:
    for name, told in entries:
        yield ".TP"
        yield f"\\fB{_text(name)}\\fR"
        yield _text(" ".join(told.split()))


def _text(text: str) -> str:
    """Return a text as roff has it: no escapes and no requests in it."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main() -> None:
    """Write them into folders that are there."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--version", required=True)
    given.add_argument("--pages", type=Path, required=True, help="the folder of the pages")
    given.add_argument("--zsh", type=Path, required=True, help="the folder of zsh's completions")
    given.add_argument("--fish", type=Path, required=True, help="the folder of fish's completions")
    arguments = given.parse_args()
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    for name, text in pages(arguments.version, seconds):
        (arguments.pages / name).write_text(text, encoding="utf-8")
    for shell, name in _COMPLETIONS.items():
        folder: Path = getattr(arguments, shell)
        variable = f"_{_NAME.replace('-', '_').upper()}_COMPLETE"
        script = get_completion_script(prog_name=_NAME, complete_var=variable, shell=shell)
        if shell == "zsh":
            script += _AT_ONCE
        (folder / name).write_text(f"{script}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
