"""Enrolments over REST: which requests get a certificate, and which do not."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from underpass_control.access import enrolments
from underpass_control.cli import app
from underpass_control.client import Client, LostError
from underpass_control.commands.enrolments import fragment_of
from underpass_control.enrolment.authority import Authority
from underpass_control.enrolment.configuration import ConfigurationError, check, filled
from underpass_control.enrolment.tokens import fingerprint_of, token_of
from underpass_control.instants import milliseconds_of, moment_of, rfc3339
from underpass_control.pruning import prune
from underpass_control.settings import Settings
from underpass_control.storage.database import DatabaseLostError

from tests.control_api.service.api import Api, Reply, now_ms, served
from tests.testbed import programs

NODE = 10
CONFIGURATION = """\
[node]
number = 10
role = "terminal"
[tls]
pki_dir = "/var/lib/underpass/pki"
"""
# The node's tests have the same token; it belongs to no node.
TOKEN = "upe_AQAAAAoAAQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywt"  # noqa: S105
TOKEN += "Li8wMTIzNDU2Nzg5Ojs8PT4_"
needs_program = pytest.mark.skipif(
    programs.missing("underpass") is not None, reason=programs.missing("underpass") or ""
)


class Keys:
    """Nodes' keys, and requests that they sign."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def request(self, key: str, node: int = NODE) -> str:
        """Return a request, signed anew each time."""
        path = self._folder / f"{key}.pem"
        if not path.exists():
            curve = "ec_paramgen_curve:prime256v1"
            _run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", curve, "-out", str(path))
        subject = f"/CN=ipn:{node}.0"
        return _run("openssl", "req", "-new", "-key", str(path), "-subj", subject)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an authority."""
    path = tmp_path / "authority"
    _run(programs.built("underpass"), "pki", "init", "--dir", str(path))
    return path


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """Keys of this test."""
    return Keys(tmp_path)


@pytest.fixture
def enrolling(url: str, folder: Path) -> Iterator[Api]:
    """The service with an authority."""
    program = programs.built("underpass")
    with served(url, Settings(authority=folder, underpass_program=program)) as api:
        yield api


def body(**changes: Any) -> dict[str, Any]:
    expires = rfc3339(moment_of(now_ms()) + timedelta(hours=1))
    return {"node": NODE, "configuration": CONFIGURATION, "expires": expires, **changes}


def made(api: Api) -> dict[str, Any]:
    answer = api.call("POST", "/v1/enrolments", body())
    assert answer.status == 201, answer.text
    shown: dict[str, Any] = answer.json
    return shown


def enrol(api: Api, token: str, request: str) -> Reply:
    given = {"token": token, "request": request}
    return api.call("POST", "/v1/node/enrolment", given, caller=None)


def renew(api: Api, request: str) -> Reply:
    return api.call("POST", "/v1/node/certificate", {"request": request}, caller=None)


def audit(api: Api) -> list[tuple[str, str]]:
    entries = api.get("/v1/audit?limit=1000", caller="administrator").json["entries"]
    return [(one["actor_kind"], one["action"]) for one in reversed(entries)]


@needs_program
def test_a_token_makes_one_key_a_node_and_a_lost_answer_is_given_again(
    enrolling: Api, keys: Keys
) -> None:
    one = made(enrolling)
    before = len(audit(enrolling))
    first = enrol(enrolling, one["token"], keys.request("own"))
    assert first.status == 200, first.text
    assert first.headers["Cache-Control"] == "no-store"
    assert first.json["node"] == NODE
    assert first.json["configuration"] == CONFIGURATION
    again = enrol(enrolling, one["token"], keys.request("own"))
    assert again.json == first.json
    other = enrol(enrolling, one["token"], keys.request("other"))
    assert other.status == 409
    assert "another key" in other.problem
    assert audit(enrolling)[before:] == [("enrolment", "use")]
    (shown,) = enrolling.get("/v1/enrolments").json["enrolments"]
    assert shown["used"]
    assert "token" not in shown


@needs_program
def test_a_gateway_renews_for_its_own_terminals_and_their_own_keys_only(
    enrolling: Api, keys: Keys
) -> None:
    enrolling.add_beam()
    for node, gateway in ((NODE, 1), (11, 2)):
        terminal = {"beam": "ku-1", "name": "a bus", "gateway": gateway}
        assert enrolling.call("PUT", f"/v1/terminals/{node}", terminal).status < 300
    own = enrol(enrolling, made(enrolling)["token"], keys.request("own")).json
    before = len(audit(enrolling))

    def ask(node: int, request: str, gateway: int = 1) -> Reply:
        path = f"/v1/gateways/{gateway}/certificates"
        return enrolling.call("POST", path, {"node": node, "request": request}, caller="gateway")

    # However often and by whichever way the request comes, it gets the same certificate.
    request = keys.request("own")
    for again in (request, request, keys.request("own")):
        answer = ask(NODE, again)
        assert answer.status == 200, answer.text
        assert answer.json["certificate"] == own["certificate"]
    assert len(audit(enrolling)) == before
    # Another node's number, another key, no request, another gateway's terminal, an unknown one.
    for node, wrong, status, why in (
        (NODE, keys.request("own", 11), 422, "names node 11"),
        (NODE, keys.request("other"), 422, ""),
        (NODE, "nonsense", 422, ""),
        (11, keys.request("own", 11), 403, "is not at gateway 1"),
        (13, keys.request("own", 13), 403, "is not at gateway 1"),
    ):
        answer = ask(node, wrong)
        assert (answer.status, why in answer.problem) == (status, True), answer.text
    assert ask(NODE, request, gateway=2).status == 403
    enrolling.call("DELETE", f"/v1/nodes/{NODE}/certificates")
    assert ask(NODE, request).status == 422


def test_a_gateway_is_told_its_own_terminals_and_nothing_while_they_stay_the_same(
    url: str,
) -> None:
    with served(url) as api:
        api.add_beam()
        path = "/v1/gateways/1/terminals"
        first = api.get(path, caller="gateway")
        assert first.json == {"terminals": []}
        for node, gateway in ((11, 1), (12, 2)):
            terminal = {"beam": "ku-1", "name": "<b>", "gateway": gateway, "weight": 3}
            terminal["return_maximum_bps"] = 1_000_000
            tag = api.get(f"/v1/terminals/{node}").headers["ETag"]
            put = api.call("PUT", f"/v1/terminals/{node}", terminal, headers={"If-Match": tag})
            assert put.status < 300, put.text
        known = {"If-None-Match": first.headers["ETag"]}
        second = api.get(path, caller="gateway", headers=known)
        assert second.json["terminals"] == [
            {"node": 11, "weight": 3, "receive_rate_bps": 1_000_000}
        ]
        known = {"If-None-Match": second.headers["ETag"]}
        assert api.get(path, caller="gateway", headers=known).status == 304
        assert api.get("/v1/gateways/2/terminals", caller="gateway").status == 403


@needs_program
def test_a_token_is_not_stored_nor_told_again(enrolling: Api) -> None:
    one = made(enrolling)
    told = (
        enrolling.get("/v1/enrolments").text
        + enrolling.get("/v1/audit", caller="administrator").text
    )
    assert one["token"] not in told


@needs_program
def test_a_request_for_another_number_uses_no_token_up(enrolling: Api, keys: Keys) -> None:
    one = made(enrolling)
    for wrong in (keys.request("own", 11), "nonsense", keys.request("own")[:-40]):
        answer = enrol(enrolling, one["token"], wrong)
        assert answer.status == 422, answer.text
    assert "names node 11" in enrol(enrolling, one["token"], keys.request("own", 11)).problem
    assert enrol(enrolling, one["token"], keys.request("own")).status == 200


@needs_program
def test_a_token_that_is_revoked_expired_or_nobodys_is_refused(enrolling: Api, keys: Keys) -> None:
    one = made(enrolling)
    assert enrolling.call("DELETE", f"/v1/enrolments/{one['id']}").status == 204
    assert enrolling.call("DELETE", f"/v1/enrolments/{one['id']}").status == 404
    soon = rfc3339(moment_of(now_ms() + 300))
    short = enrolling.call("POST", "/v1/enrolments", body(expires=soon)).json
    while now_ms() <= milliseconds_of(short["expires"]):
        pass
    for token in (one["token"], short["token"], TOKEN):
        answer = enrol(enrolling, token, keys.request("own"))
        assert answer.status == 403
        assert "unknown, expired or revoked" in answer.problem
    assert enrolling.call("POST", "/v1/enrolments", body(expires=soon)).status == 422
    late = rfc3339(moment_of(now_ms()) + timedelta(days=91))
    assert enrolling.call("POST", "/v1/enrolments", body(expires=late)).status == 422


@needs_program
def test_a_revoked_node_is_on_the_list_and_neither_renewed_nor_enrolled_by_its_key(
    enrolling: Api, keys: Keys
) -> None:
    one = made(enrolling)
    before = enrolling.get("/v1/authority/revocations", caller=None)
    assert enrol(enrolling, one["token"], keys.request("own")).status == 200
    assert renew(enrolling, keys.request("own")).status == 200
    gone = enrolling.call("DELETE", f"/v1/nodes/{NODE}/certificates")
    assert len(gone.json["revoked"]) == 1
    assert enrolling.call("DELETE", f"/v1/nodes/{NODE}/certificates").status == 409
    assert enrolling.call("DELETE", "/v1/nodes/99/certificates").status == 409
    tag = {"If-None-Match": before.headers["ETag"]}
    after = enrolling.get("/v1/authority/revocations", caller=None, headers=tag)
    assert after.status == 200
    assert after.text != before.text
    tag = {"If-None-Match": after.headers["ETag"]}
    assert enrolling.get("/v1/authority/revocations", caller=None, headers=tag).status == 304
    refused = renew(enrolling, keys.request("own"))
    assert refused.status == 403
    assert "revoked" in refused.problem
    assert enrol(enrolling, one["token"], keys.request("own")).status == 422
    assert enrol(enrolling, made(enrolling)["token"], keys.request("next")).status == 200


@needs_program
def test_a_key_that_another_has_followed_is_not_enrolled_again(enrolling: Api, keys: Keys) -> None:
    stolen, next_one, unused = (made(enrolling) for _ in range(3))
    assert enrol(enrolling, stolen["token"], keys.request("stolen")).status == 200
    assert enrolling.call("DELETE", f"/v1/nodes/{NODE}/certificates").status == 200
    assert enrol(enrolling, next_one["token"], keys.request("next")).status == 200
    # The token is this key's and has not expired; a new certificate would be on no list.
    again = enrol(enrolling, stolen["token"], keys.request("stolen"))
    assert again.status == 403, again.text
    assert renew(enrolling, keys.request("next")).status == 200
    assert enrol(enrolling, next_one["token"], keys.request("next")).status == 200
    shown = enrolling.get("/v1/enrolments").json["enrolments"]
    ended = {one["id"]: "revoked" in one for one in shown}
    assert ended == {stolen["id"]: True, next_one["id"]: False, unused["id"]: False}


@needs_program
def test_a_number_whose_key_the_authority_has_made_uses_no_token_up(
    enrolling: Api, keys: Keys, folder: Path
) -> None:
    one = made(enrolling)
    program = programs.built("underpass")
    _run(program, "pki", "issue", "--dir", str(folder), "--node", str(NODE))
    refused = enrol(enrolling, one["token"], keys.request("own"))
    assert refused.status == 422
    assert "move the folder away" in refused.problem
    (folder / "nodes" / str(NODE)).rename(folder / "by-hand")
    # The node has discarded its key, since it was refused for good.
    assert enrol(enrolling, one["token"], keys.request("another")).status == 200


@needs_program
def test_nobody_renews_without_the_key_of_a_certificate(enrolling: Api, keys: Keys) -> None:
    assert enrol(enrolling, made(enrolling)["token"], keys.request("own")).status == 200
    for request in (keys.request("other"), keys.request("own", 11), "nonsense"):
        assert renew(enrolling, request).status == 403


@needs_program
def test_whoever_asks_too_often_is_refused(enrolling: Api) -> None:
    statuses = {enrol(enrolling, TOKEN, "nonsense").status for _ in range(60)}
    assert statuses == {403, 429}


@needs_program
def test_an_authority_that_is_at_work_elsewhere_is_waited_for(
    enrolling: Api, keys: Keys, folder: Path
) -> None:
    one = made(enrolling)
    script = "import fcntl, os, sys, time; d = os.open(sys.argv[1], os.O_RDONLY);"
    script += "fcntl.flock(d, fcntl.LOCK_EX); print(flush=True); time.sleep(float(sys.argv[2]))"

    def held(for_s: float) -> subprocess.Popen[bytes]:
        command = ["python3", "-c", script, str(folder), str(for_s)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    with held(60) as process:
        away = enrol(enrolling, one["token"], keys.request("own"))
        process.kill()
    assert away.status == 503
    assert away.headers["Retry-After"]
    # By now the token belongs to the key, and works for it.
    assert enrol(enrolling, one["token"], keys.request("other")).status == 409
    with held(0.3):
        assert enrol(enrolling, one["token"], keys.request("own")).status == 200


def test_a_service_without_an_authority_says_so(api: Api) -> None:
    for answer in (
        api.call("POST", "/v1/enrolments", body()),
        enrol(api, TOKEN, "x"),
        renew(api, "x"),
        api.get("/v1/authority/revocations", caller=None),
    ):
        assert answer.status == 409
        assert "--authority" in answer.problem


def test_a_configuration_is_for_its_node(api: Api) -> None:
    for wrong, why in (
        ("[node", "no TOML"),
        ("x = 1", "node.number"),
        (CONFIGURATION.replace("10", "11"), "node.number is 11"),
        ("[node]\nnumber = 10\n", "pki_dir"),
        ("node = 10", "node.number"),
    ):
        refused = api.call("POST", "/v1/enrolments", body(configuration=wrong))
        assert refused.status == 422
        assert why in refused.problem
    deep = api.call("POST", "/v1/enrolments", body(configuration="x = " + "[" * 60_000))
    assert deep.status == 422
    long = api.call("POST", "/v1/enrolments", body(configuration="x = " + "9" * 5_000))
    assert (long.status, "no TOML" in long.problem) == (422, True)


def test_a_template_takes_values_that_cannot_break_out_of_a_string() -> None:
    template = 'a = "${name}"\nnumber = ${node}\nprice = "$$5"\n'
    assert filled(template, {"name": "Ü 1", "node": "7"}) == 'a = "Ü 1"\nnumber = 7\nprice = "$5"\n'
    for values in ({"node": "7"}, {"name": 'x"\nb = 1', "node": "7"}, {"name": "\\", "node": "7"}):
        with pytest.raises(ConfigurationError):
            filled(template, values)
    with pytest.raises(ConfigurationError, match="no value"):
        filled("${gone}", {})
    with pytest.raises(ConfigurationError):
        filled("5 $", {})
    check(filled(CONFIGURATION, {}), NODE)


def test_a_hubs_terminals_are_written_as_its_configuration_has_them() -> None:
    shown = [
        {"node": 12, "name": 'Bus "12"', "weight": 3, "forward_maximum_bps": 8_000_000},
        {"node": 11, "name": "Bus 11", "weight": 1, "return_maximum_bps": 500_000},
    ]
    assert tomllib.loads(fragment_of(1, shown)) == {
        "terminal": [
            {"node": 11, "receive_rate_bps": 500_000},
            {"node": 12, "weight": 3, "send_rate_bps": 8_000_000},
        ]
    }


def test_a_table_that_is_wrong_somewhere_makes_no_token(tmp_path: Path) -> None:
    template = tmp_path / "terminal.toml"
    template.write_text("x = '${name}'")
    table = tmp_path / "vehicles.csv"
    for text, why in (
        ("node,name\n10,a\n10,b\n", "line 3: node 10 is there twice"),
        ("node,name\n10,a\nx,b\n", "line 3: node = 'x' is no node number"),
        ("node,name\n10\n", "line 2: it has not as many cells"),
        ("node,name\n10,a,b\n", "line 2: it has not as many cells"),
        ("name\na\n", "line 2: node = ''"),
        ("node,name\n", "has no rows"),
        ("node,other\n10,a\n", "${name} has no value"),
        ("node,name\n10,'\n", "quotes"),
    ):
        table.write_text(text)
        # Nothing listens there; it is not even contacted.
        verb = ["enrolment", "import", str(table), "--configuration", str(template)]
        result = CliRunner().invoke(app, [*verb, "--url", "http://127.0.0.1:1"])
        assert result.exit_code == 1
        assert why in result.output, text


def test_what_cannot_be_read_is_told_and_no_stack(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("node,name\n10,a\n")
    for text in (b"node,name\n10,\xff\n", b"node,name\n10," + b"x" * 140_000, b"\xff"):
        bad.write_bytes(text)
        for table, template in ((bad, good), *(((good, bad),) if b"\xff" in text else ())):
            verb = ["enrolment", "import", str(table), "--configuration", str(template)]
            result = CliRunner().invoke(app, [*verb, "--url", "http://127.0.0.1:1"])
            assert result.exit_code == 1
            assert f"cannot read {bad}" in result.output


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_what_ends_an_import_takes_no_tokens_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    template, table = tmp_path / "terminal.toml", tmp_path / "vehicles.csv"
    template.write_text("")
    table.write_text("node\n10\n11\n12\n")

    async def ask(_: Client, __: str, ___: str, *, body: Any) -> Any:
        if body["node"] == 12:
            raise LostError("the database is away")
        return {"node": body["node"], "token": f"upe_{body['node']}"}

    monkeypatch.setattr(Client, "ask", ask)
    verb = ["enrolment", "import", str(table), "--configuration", str(template), *option]
    result = CliRunner().invoke(app, verb)
    assert result.exit_code == 1
    assert "node 12: the database is away" in result.output
    assert "upe_10" in result.output
    assert "upe_11" in result.output


def test_an_import_says_how_far_it_is_and_its_tokens_go_where_they_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, table = tmp_path / "terminal.toml", tmp_path / "vehicles.csv"
    template.write_text("")
    table.write_text("node\n10\n11\n")

    async def ask(_: Client, __: str, ___: str, *, body: Any) -> Any:
        return {"node": body["node"], "token": f"upe_{body['node']}"}

    monkeypatch.setattr(Client, "ask", ask)
    verb = ["enrolment", "import", str(table), "--configuration", str(template)]
    quiet = CliRunner().invoke(app, verb)
    assert (quiet.stdout, quiet.stderr) == ("10,upe_10\n11,upe_11\n", "")
    # As on a terminal, with its tokens written to a file.
    seen = CliRunner().invoke(app, verb, env={"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"})
    assert seen.stdout == quiet.stdout
    assert "tokens made" in seen.stderr


def test_a_number_that_no_node_has_is_not_found(api: Api) -> None:
    for number in (0, 2**32 - 1, 10**17):
        assert api.call("DELETE", f"/v1/nodes/{number}/certificates").status == 404


def test_what_cannot_be_written_down_is_not_revoked(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    async def revoke(_: Authority, node: int) -> list[str]:
        asked.append(node)
        return ["01"]

    def lost() -> Any:
        raise DatabaseLostError("away")

    monkeypatch.setattr(Authority, "revoke", revoke)
    with served(url, Settings(authority=tmp_path)) as api:
        with monkeypatch.context() as away:
            away.setattr(api.database, "transaction", lost)
            assert api.call("DELETE", f"/v1/nodes/{NODE}/certificates").status == 503
        assert asked == []
        assert api.call("DELETE", f"/v1/nodes/{NODE}/certificates").status == 200
        assert audit(api)[-1] == ("token", "revoke")


def test_nobody_is_told_where_the_authority_is(url: str, tmp_path: Path) -> None:
    with served(url, Settings(authority=tmp_path)) as api:
        answer = api.get("/v1/authority/revocations", caller=None)
        assert answer.status == 503
        assert str(tmp_path) not in answer.text


async def test_enrolments_are_deleted_some_time_after_they_have_expired(api: Api) -> None:
    async with api.database.transaction() as connection:
        for expires_ms in (1_000, now_ms() + 60_000):
            await enrolments.create_enrolment(
                connection,
                node=NODE,
                configuration=CONFIGURATION,
                fingerprint=bytes(32),
                now_ms=0,
                expires_ms=expires_ms,
            )
    before_ms = now_ms() - 1_000
    assert await prune(api.database, enrolments.prune_enrolments, before_ms) == 1
    (left,) = (await api.ask("GET", "/v1/enrolments")).json["enrolments"]
    assert milliseconds_of(left["expires"]) > before_ms


def test_enrolments_are_listed_the_newest_first_and_of_one_node(api: Api) -> None:
    async def make() -> None:
        async with api.database.transaction() as connection:
            for node in (10, 11, 10, 12, 10):
                await enrolments.create_enrolment(
                    connection,
                    node=node,
                    configuration=CONFIGURATION,
                    fingerprint=bytes(32),
                    now_ms=0,
                    expires_ms=now_ms() + 60_000,
                )

    api.run(make())

    def nodes(query: str) -> list[int]:
        return [one["node"] for one in api.get(f"/v1/enrolments?{query}").json["enrolments"]]

    assert nodes("") == [10, 11, 10, 12, 10]
    assert nodes("order=newest") == [10, 12, 10, 11, 10]
    assert nodes("node=10&order=newest") == [10, 10, 10]
    assert nodes("node=13") == []
    page = api.get("/v1/enrolments?order=newest&limit=2").json
    assert nodes(f"order=newest&limit=2&cursor={page['next']}") == [10, 11]


@needs_program
def test_what_is_wrong_with_an_enrolment_is_told_by_the_member(enrolling: Api) -> None:
    soon = rfc3339(moment_of(now_ms()) + timedelta(days=91))
    for member, wrong in (("configuration", "x"), ("expires", soon), ("node", 0)):
        answer = enrolling.call("POST", "/v1/enrolments", body(**{member: wrong}))
        assert answer.status == 422, answer.text
        assert [one["pointer"] for one in answer.json["errors"]] == [f"/{member}"]


def test_a_token_has_number_fingerprint_and_random_bytes(tmp_path: Path) -> None:
    random = bytes(range(32, 64))
    assert token_of(NODE, bytes(range(32)), random) == TOKEN
    empty = tmp_path / "empty.crt"
    empty.write_text("")
    with pytest.raises(ValueError, match="no certificate"):
        fingerprint_of(empty)
