"""`underpass-control enrolment`."""

from __future__ import annotations

import csv
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from underpass_control.client import Client, LostError, RefusedError, path_of
from underpass_control.commands.console import bars, fail, print_json, tell, with_client
from underpass_control.commands.tables import Service, asking, named
from underpass_control.enrolment.configuration import ConfigurationError, filled

enrolments = typer.Typer(
    help="Enrolments: bare nodes become nodes of the fleet.", no_args_is_help=True
)

ENROLMENT = named("id", "node", "created", "expires", "revoked", "used")
_MOST_ROWS = 10_000

Template = Annotated[
    Path,
    typer.Option(
        "--configuration",
        exists=True,
        dir_okay=False,
        help="The node's configuration; ${node} and what --set or a column names is filled in.",
    ),
]
ValidDays = Annotated[int, typer.Option(min=1, max=90, help="For how long the token is good.")]


@asking(enrolments, "create")
def create_enrolment(
    service: Service,
    node: Annotated[int, typer.Argument(min=1, help="Its ipn node number.")],
    configuration: Template,
    values: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="What ${NAME} is.")
    ] = None,
    valid_days: ValidDays = 7,
) -> None:
    """Make a token that one bare node is enrolled with, and print it: it is not shown again.

    Example: underpass-control enrolment create 10 --configuration terminal.toml
    """
    given = dict(_pair(one) for one in values or ())
    body = _body(node, _read(configuration), given, valid_days)
    made = with_client(service.url, service.token, lambda client: _create(client, body))
    tell(made, made["token"], as_json=service.as_json)


@asking(enrolments, "import")
def import_enrolments(
    service: Service,
    table: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="CSV with a column node, and others."),
    ],
    configuration: Template,
    valid_days: ValidDays = 7,
) -> None:
    """Make a token for each row of a table, and print them: node, a comma, token.

    The whole table is looked at before the first token is made. Each is printed once it is made:
    what ends the import takes no tokens with it.

    Example: underpass-control enrolment import vehicles.csv --configuration terminal.toml
    """
    template = _read(configuration)
    bodies = [_body(node, template, row, valid_days) for node, row in _rows(table)]
    made: list[Any] = []

    async def run(client: Client) -> None:
        # If the tokens themselves are visible, they show the progress.
        with bars(quiet=sys.stdout.isatty() and not service.as_json) as bar:
            for body in bar.track(bodies, description="tokens made"):
                one = await _create(client, body)
                made.append(one)
                if not service.as_json:
                    typer.echo(f"{one['node']},{one['token']}")

    try:
        with_client(service.url, service.token, run)
    finally:
        if service.as_json:
            print_json(made)


@asking(enrolments, "list")
def list_enrolments(service: Service) -> None:
    """Show all enrolments, without their tokens.

    Example: underpass-control enrolment list
    """
    service.show_all(path_of("enrolments"), "enrolments", ENROLMENT)


@asking(enrolments, "revoke", json=False)
def revoke_enrolment(
    service: Service, enrolment: Annotated[int, typer.Argument(help="Its id in the list.")]
) -> None:
    """Revoke a token; a certificate that it has led to stays good.

    Example: underpass-control enrolment revoke 3
    """
    service.ask("DELETE", path_of("enrolments", enrolment))


@asking(enrolments, "revoke-certificates")
def revoke_certificates(
    service: Service, node: Annotated[int, typer.Argument(min=1, help="Its ipn node number.")]
) -> None:
    """Revoke all certificates of a node: the others end its sessions.

    Example: underpass-control enrolment revoke-certificates 10
    """
    revoked = service.ask("DELETE", path_of("nodes", node, "certificates"))["revoked"]
    tell({"revoked": revoked}, f"revoked: {', '.join(revoked)}", as_json=service.as_json)


@asking(enrolments, "terminals", json=False)
def terminals_of_hub(
    service: Service,
    gateway: Annotated[int, typer.Argument(min=1, help="The hub's node number.")],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Replace this file, as conf.d/terminals.toml beside the hub's node.toml."
        ),
    ] = None,
) -> None:
    """Write the terminals of a hub as its configuration has them; `underpass reload` takes them.

    Example: underpass-control enrolment terminals 1 --output /etc/underpass/conf.d/terminals.toml
    """

    async def run(client: Client) -> list[Any]:
        found = client.pages(path_of("terminals"), "terminals")
        return [one async for one in found if one.get("gateway") == gateway]

    text = fragment_of(gateway, with_client(service.url, service.token, run))
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        _replace(output, text)
    except OSError as error:
        fail(f"cannot write {output}: {error}")


def fragment_of(gateway: int, terminals: Sequence[Mapping[str, Any]]) -> str:
    """Return a fragment of a hub's configuration with its terminals."""
    lines = [
        f"# The terminals of hub {gateway}, as the control service has them: written anew by",
        f"# `underpass-control enrolment terminals {gateway}`.",
    ]
    for one in sorted(terminals, key=lambda one: int(one["node"])):
        lines += ["", f"# {one['name']}", "[[terminal]]", f"node = {one['node']}"]
        if one.get("weight", 1) != 1:
            lines.append(f"weight = {one['weight']}")
        for key, member in (
            ("send_rate_bps", "forward_maximum_bps"),
            ("receive_rate_bps", "return_maximum_bps"),
        ):
            if one.get(member) is not None:
                lines.append(f"{key} = {one[member]}")
    return "\n".join([*lines, ""])


async def _create(client: Client, body: Mapping[str, Any]) -> Any:
    try:
        return await client.ask("POST", path_of("enrolments"), body=body)
    except RefusedError as error:
        raise RefusedError(error.status, f"node {body['node']}: {error}") from error
    except LostError as error:
        raise LostError(f"node {body['node']}: {error}", error.again_s) from error


def _body(node: int, template: str, values: Mapping[str, str], valid_days: int) -> dict[str, Any]:
    try:
        text = filled(template, {**values, "node": str(node)})
    except ConfigurationError as error:
        fail(f"node {node}: {error}")
    expires = datetime.now(UTC) + timedelta(days=valid_days) - timedelta(minutes=1)
    return {"node": node, "configuration": text, "expires": expires.isoformat()}


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        fail(f"--set {text}: must be NAME=VALUE")
    return name, value


def _read(template: Path) -> str:
    try:
        return template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read {template}: {error}")


def _rows(table: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        return _checked_rows(table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        fail(f"cannot read {table}: {error}")


def _checked_rows(table: Path) -> list[tuple[int, dict[str, str]]]:
    found: dict[int, dict[str, str]] = {}
    with table.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            node = row.get("node") or ""
            if None in row or None in row.values():
                fail(f"{table} line {number}: it has not as many cells as the first line")
            if not (node.isascii() and node.isdigit() and len(node) <= 10 and int(node) > 0):
                fail(f"{table} line {number}: node = {node!r} is no node number")
            if int(node) in found:
                fail(f"{table} line {number}: node {node} is there twice")
            if len(found) == _MOST_ROWS:
                fail(f"{table}: more than {_MOST_ROWS} rows; split it")
            found[int(node)] = row
    if not found:
        fail(f"{table} has no rows below a first line with the column node")
    return list(found.items())


def _replace(path: Path, text: str) -> None:
    """Replace a file as a whole, readable as the one before."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink()
        raise
