"""Verbs for users, tokens and tenants, over the database, which make the first administrator."""

from __future__ import annotations

import getpass
import os
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from underpass_control.commands.console import JsonOption, fail, print_json, tell
from underpass_control.commands.database import DEFAULT_DATABASE, DatabaseOption, with_database
from underpass_control.commands.tables import named, print_table
from underpass_control.instants import moment_of, rfc3339
from underpass_control.roles import Role

# Storage and hashing take long to import, so a verb imports them when it runs.
if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from underpass_control.access.audit import Changed
    from underpass_control.storage.database import Database

tokens = typer.Typer(help="Bearer tokens of the REST API.", no_args_is_help=True)
users = typer.Typer(help="Users of the console and the REST API.", no_args_is_help=True)

UserName = Annotated[str, typer.Argument(help="The name that the user signs in with.")]
TenantOption = Annotated[
    str | None, typer.Option(help="Whose vehicles are seen; without it, of the whole system.")
]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]
_TOKEN_COLUMNS = ("id", "name", "role", "tenant", "node", "created", "expires", "revoked")
_USER_COLUMNS = ("name", "role", "tenant", "issuer", "created")


@tokens.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="Whose it is, for people.")],
    role: Annotated[Role, typer.Option(help="What it may do.")],
    node: Annotated[
        int | None, typer.Option(min=1, help="The node that a gateway or terminal is.")
    ] = None,
    tenant: TenantOption = None,
    valid_days: Annotated[
        int | None, typer.Option(min=1, help="Without it, valid until revoked.")
    ] = None,
    database: DatabaseOption = DEFAULT_DATABASE,
    as_json: JsonOption = False,
) -> None:
    """Make a token and print it: it cannot be shown again.

    Example: underpass-control token create "hub 1" --role gateway --node 1
    """
    from underpass_control.access.tokens import create_token as create

    if role is Role.TERMINAL and node is None:
        fail("a terminal's token needs --node")
    if role in (Role.GATEWAY, Role.AGENT) and tenant is not None:
        fail(f"a token of the role {role.value} serves all tenants: it belongs to none")

    async def run(opened: Database) -> str:
        now_ms = _now_ms()
        expires = None
        if valid_days is not None:
            expires = now_ms + int(timedelta(days=valid_days).total_seconds() * 1000)
        async with opened.transaction() as connection:
            await _check_tenant(connection, tenant)
            number, text = await create(
                connection,
                name=name,
                role=role,
                node=node,
                tenant=tenant,
                now_ms=now_ms,
                expires_ms=expires,
            )
            after = _without_none(name=name, role=role.value, node=node, tenant=tenant)
            await _record(connection, "create", f"/v1/tokens/{number}", tenant, after=after)
        return text

    token = with_database(database, run)
    tell({"token": token}, token, as_json=as_json)


@tokens.command("list")
def list_tokens(database: DatabaseOption = DEFAULT_DATABASE, as_json: JsonOption = False) -> None:
    """Show all tokens, but for themselves.

    Example: underpass-control token list
    """
    from underpass_control.access.tokens import page_of_tokens

    async def run(opened: Database) -> list[dict[str, object]]:
        async with opened.reading() as connection:
            rows = await page_of_tokens(connection, after=None, limit=None)
            return [_shown(row._mapping, _TOKEN_COLUMNS) for row in rows]

    _show_table(with_database(database, run), _TOKEN_COLUMNS, as_json=as_json)


@tokens.command("revoke")
def revoke_token(
    token_id: Annotated[int, typer.Argument(help="Its id in the list.")],
    database: DatabaseOption = DEFAULT_DATABASE,
    as_json: JsonOption = False,
) -> None:
    """Revoke a token: the service refuses it within seconds.

    Example: underpass-control token revoke 3
    """
    from underpass_control.access.tokens import get_token
    from underpass_control.access.tokens import revoke_token as revoke

    async def run(opened: Database) -> bool:
        async with opened.transaction() as connection:
            found = await revoke(connection, token_id, _now_ms())
            row = await get_token(connection, token_id)
            if found and row is not None:
                target = f"/v1/tokens/{token_id}"
                await _record(connection, "revoke", target, row.tenant_id)
            return found

    if not with_database(database, run):
        fail(f"there is no token {token_id} in force")
    tell({"revoked": token_id}, f"token {token_id} is revoked", as_json=as_json)


@users.command("add")
def add_user(
    name: UserName,
    role: Annotated[Role, typer.Option(help="viewer, operator or administrator.")],
    tenant: TenantOption = None,
    password_stdin: PasswordStdin = False,
    database: DatabaseOption = DEFAULT_DATABASE,
    as_json: JsonOption = False,
) -> None:
    """Make a user; the password is asked for.

    Example: underpass-control user add ada --role administrator
    """
    from sqlalchemy.exc import IntegrityError

    from underpass_control.access.users import USER_NAME, USER_ROLES, create_user

    if not USER_NAME.fullmatch(name):
        fail("a name has 1 to 64 of a-z, 0-9 and . _ @ + -, and begins with a-z or 0-9")
    if role not in USER_ROLES:
        fail(f"a {role} is no person: make a token")
    hashed = _hashed(ask_password(from_stdin=password_stdin))

    async def run(opened: Database) -> bool:
        try:
            async with opened.transaction() as connection:
                await _check_tenant(connection, tenant)
                await create_user(
                    connection,
                    name=name,
                    role=role,
                    tenant=tenant,
                    password_hash=hashed,
                    now_ms=_now_ms(),
                )
                after = _without_none(name=name, role=role.value, tenant=tenant)
                await _record(connection, "set", f"/v1/users/{name}", tenant, after=after)
        except IntegrityError:
            return False
        return True

    if not with_database(database, run):
        fail(f"there is a user {name} already: `user passwd` sets another password")
    tell({"user": name}, f"{name} can sign in", as_json=as_json)


@users.command("passwd")
def set_password(
    name: UserName,
    password_stdin: PasswordStdin = False,
    database: DatabaseOption = DEFAULT_DATABASE,
    as_json: JsonOption = False,
) -> None:
    """Set a user's password; all sessions of the user end.

    Example: underpass-control user passwd ada
    """
    from underpass_control.access.users import change_user, get_user

    hashed = _hashed(ask_password(from_stdin=password_stdin))

    async def run(opened: Database) -> bool:
        async with opened.transaction() as connection:
            row = await get_user(connection, name)
            if row is None:
                return False
            if row.issuer is not None:
                fail(f"{name} signs in by {row.issuer}: there is no password here to set")
            await change_user(connection, row.id, {"password_hash": hashed})
            after = {"password_set": True}
            await _record(connection, "set", f"/v1/users/{name}", row.tenant_id, after=after)
            return True

    if not with_database(database, run):
        fail(f"there is no user {name}: `user list` shows all")
    tell({"user": name}, f"{name} has another password", as_json=as_json)


@users.command("list")
def list_users(database: DatabaseOption = DEFAULT_DATABASE, as_json: JsonOption = False) -> None:
    """Show all users.

    Example: underpass-control user list
    """
    from underpass_control.access.users import page_of_users

    async def run(opened: Database) -> list[dict[str, object]]:
        async with opened.reading() as connection:
            rows = await page_of_users(connection, after=None, limit=None)
            return [_shown(row._mapping, _USER_COLUMNS) for row in rows]

    _show_table(with_database(database, run), _USER_COLUMNS, as_json=as_json)


@users.command("remove")
def remove_user(
    name: UserName, database: DatabaseOption = DEFAULT_DATABASE, as_json: JsonOption = False
) -> None:
    """Remove a user, whose sessions end within a second.

    Example: underpass-control user remove ada
    """
    from underpass_control.access.users import get_user, user_state
    from underpass_control.access.users import remove_user as remove

    async def run(opened: Database) -> bool:
        async with opened.transaction() as connection:
            row = await get_user(connection, name)
            if row is None:
                return False
            await remove(connection, row.id)
            target, was = f"/v1/users/{name}", user_state(row)
            await _record(connection, "delete", target, row.tenant_id, before=was)
            return True

    if not with_database(database, run):
        fail(f"there is no user {name}: `user list` shows all")
    tell({"removed": name}, f"{name} is removed", as_json=as_json)


def ask_password(*, from_stdin: bool) -> str:
    """Return a new password: the first line of standard input, or what is typed twice."""
    if from_stdin or not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    typed = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != typed:
        fail("the two are not the same")
    return typed


def _hashed(password: str) -> str:
    from underpass_control.access.passwords import PasswordError, hash_now

    try:
        return hash_now(password)
    except PasswordError as error:
        fail(str(error))


async def _check_tenant(connection: AsyncConnection, tenant: str | None) -> None:
    from underpass_control.access.users import get_tenant

    if tenant is not None and await get_tenant(connection, tenant) is None:
        fail(f"there is no tenant {tenant}: an administrator makes it by PUT /v1/tenants/{tenant}")


async def _record(
    connection: AsyncConnection,
    action: str,
    target: str,
    tenant: str | None,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """Write a change into the log, as one of this machine's user."""
    from underpass_control.access.audit import COMMAND_LINE, Actor, Changed, record

    changed: Changed = Changed(action, target, tenant, before, after)
    await record(connection, Actor(COMMAND_LINE, None, _operator(), ""), [changed], _now_ms())


def _operator() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # The user of a container may have no name.
        return f"uid {os.getuid()}"


def _show_table(found: list[dict[str, object]], columns: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_table(named(*columns), found)


def _shown(row: object, columns: tuple[str, ...]) -> dict[str, object]:
    values = dict(row)  # type: ignore[call-overload]
    values["tenant"] = values["tenant_id"]
    for name in ("created", "expires", "revoked"):
        ms = values.get(f"{name}_ms")
        values[name] = None if ms is None else rfc3339(moment_of(ms))
    return {name: values[name] for name in columns}


def _without_none(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
