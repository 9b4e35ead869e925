"""The operator's command line."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner
from underpass_control.cli import app
from underpass_control.commands.console import bars

from tests.control_api.service.api import served
from tests.free_port import free_port

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Undo a command's changes to logging: its standard error is closed afterwards."""
    yield
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:
            root.removeHandler(handler)


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == status, result.output
    return result.output


def test_nothing_is_shown_of_what_goes_on_where_there_is_no_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with bars() as bar:
        bar.advance(bar.add_task("tiles", total=2))
    assert capfd.readouterr() == ("", "")


def test_each_verb_has_help() -> None:
    for verb in ([], ["serve"], ["migrate"], ["token"], ["token", "create"], ["token", "list"]):
        assert "--help" in run(*verb, "--help")


def test_what_takes_long_to_import_waits_until_a_verb_needs_it() -> None:
    """Otherwise each verb, and even help, would take seconds of processor time to begin."""
    slow = ("aiohttp", "alembic", "numpy", "osmium", "rasterio", "shapely", "sqlalchemy")
    program = f"import sys, underpass_control.cli; print([m for m in {slow} if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'control-api'}"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_token_is_made_listed_and_revoked(url: str) -> None:
    where = ("--database", url)
    made = run("token", "create", "the hub", "--role", "gateway", "--node", "1", "--json", *where)
    token = json.loads(made)["token"]
    assert run("token", "create", "me", "--role", "operator", *where).startswith("upc_")
    (first, second) = json.loads(run("token", "list", "--json", *where))
    assert (first["name"], first["role"], first["node"], first["expires"]) == (
        "the hub",
        "gateway",
        1,
        None,
    )
    assert token not in run("token", "list", *where)
    assert "the hub" in run("token", "list", *where)
    run("token", "revoke", str(first["id"]), *where)
    assert "no token" in run("token", "revoke", str(first["id"]), *where, status=1)
    listed = json.loads(run("token", "list", "--json", *where))
    assert [one["revoked"] is None for one in listed] == [False, True]
    assert second["role"] == "operator"


def test_a_terminals_token_needs_its_node(url: str) -> None:
    refused = run("token", "create", "x", "--role", "terminal", "--database", url, status=1)
    assert "--node" in refused


def test_a_user_is_added_gets_a_password_and_is_removed(url: str) -> None:
    where = ("--database", url)

    def with_password(*arguments: str, password: str, status: int = 0) -> str:
        result = CliRunner().invoke(app, [*arguments, *where], input=f"{password}\n")
        assert result.exit_code == status, result.output
        return result.output

    add = ("user", "add", "ada", "--role", "administrator")
    assert "12 to 256" in with_password(*add, password="short", status=1)  # noqa: S106
    assert "can sign in" in with_password(*add, password="a long enough one")  # noqa: S106
    assert "already" in with_password(*add, password="a long enough one", status=1)  # noqa: S106
    unknown = ("user", "add", "bob", "--role", "viewer", "--tenant", "nowhere")
    assert "no tenant" in with_password(*unknown, password="a long enough one", status=1)  # noqa: S106
    robot = ("user", "add", "bob", "--role", "gateway")
    assert "make a token" in with_password(*robot, password="a long enough one", status=1)  # noqa: S106
    (listed,) = json.loads(run("user", "list", "--json", *where))
    assert (listed["name"], listed["role"], listed["tenant"]) == ("ada", "administrator", None)
    with_password("user", "passwd", "ada", password="quite another one")  # noqa: S106
    with served(url) as api:
        for password, status in (("a long enough one", 401), ("quite another one", 201)):
            body = {"name": "ada", "password": password}
            assert api.call("POST", "/v1/session", body, caller=None).status == status
        written = api.get("/v1/audit", caller="administrator").json["entries"]
        assert [one["actor_kind"] for one in written] == ["user", "command line", "command line"]
    run("user", "remove", "ada", *where)
    assert "no user" in run("user", "remove", "ada", *where, status=1)
    assert json.loads(run("user", "list", "--json", *where)) == []


def test_the_schema_goes_up_and_down(empty_url: str) -> None:
    where = ("--database", empty_url)
    assert "underpass-control migrate" in run("token", "list", *where, status=1)
    run("migrate", *where)
    assert json.loads(run("token", "list", "--json", *where)) == []
    run("migrate", "--down-to", "base", *where)
    run("token", "list", *where, status=1)


def test_a_schema_of_a_later_version_is_told(tmp_path: Path) -> None:
    file = tmp_path / "control.db"
    where = ("--database", f"sqlite:///{file}")
    run("migrate", *where)
    assert "9999" in run("migrate", "--down-to", "9999", *where, status=1)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for verb in (["migrate"], ["serve"]):
        told = run(*verb, *where, status=1)
        assert told.startswith("underpass-control: the schema cannot be migrated: ")
        assert "9999" in told


@pytest.mark.parametrize("url_of", ["mysql://host/name", "sqlite:////nowhere/at/all.db"])
def test_a_database_that_cannot_be_is_told_in_a_line(url_of: str) -> None:
    told = run("migrate", "--database", url_of, status=1)
    assert told.startswith("underpass-control: ")
    assert "Traceback" not in told


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "control.db"
    file.write_text("Dear diary,\n" * 100)
    for verb in (["serve"], ["token", "list"]):
        told = run(*verb, "--database", f"sqlite:///{file}", status=1)
        assert told.startswith(f"underpass-control: database sqlite:///{file}: ")
    assert file.read_text().startswith("Dear diary")


def test_a_service_that_cannot_listen_says_where(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = run(
            "serve", "--database", f"sqlite:///{tmp_path / 'c.db'}", "--port", str(port), status=1
        )
    assert f"underpass-control: cannot listen on 127.0.0.1, port {port}: " in told


@pytest.mark.parametrize(
    "option", ["--keep-positions-days", "--session-hours", "--token-requests-per-second"]
)
def test_times_and_rates_have_bounds(option: str) -> None:
    for value in ("1e300", "nan", "-1"):
        assert option in run("serve", option, value, status=2)


def test_the_service_runs_from_the_command_line_until_sigterm(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "underpass_control", "serve", "--port", str(port)]
    command += ["--database", f"sqlite:///{tmp_path / 'control.db'}"]
    path = {"PYTHONPATH": f"{ROOT / 'control-api'}:{ROOT}"}
    with subprocess.Popen(command, env=os.environ | path) as service:
        try:
            assert _ready(f"http://127.0.0.1:{port}/ready", service) == {"status": "ok"}
        finally:
            service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0


def _ready(url: str, service: subprocess.Popen[bytes]) -> object:
    until = time.monotonic() + 60
    while time.monotonic() < until and service.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
                return json.load(answer)
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the service does not answer")
