"""The operator's command line."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from underpass_control import logs
from underpass_control.commands.accounts import tokens, users
from underpass_control.commands.announce import announce
from underpass_control.commands.console import JsonOption, bars, tell
from underpass_control.commands.console import fail as _fail
from underpass_control.commands.database import (
    DEFAULT_DATABASE,
    DatabaseOption,
    open_database,
    with_database,
)
from underpass_control.commands.enrolments import enrolments
from underpass_control.commands.fairness import fairness
from underpass_control.commands.functions import functions_agent, slices
from underpass_control.commands.ledger import ledger
from underpass_control.commands.observed import blockages, links, nodes, streams
from underpass_control.commands.obstructions import obstructions
from underpass_control.commands.plans import plans
from underpass_control.commands.positions import positions
from underpass_control.commands.registry import beams, terminals
from underpass_control.commands.replay import replay
from underpass_control.commands.rollouts import rollouts
from underpass_control.commands.settings import node_settings
from underpass_control.commands.tenants import tenants
from underpass_control.http.addresses import Network
from underpass_control.settings import Settings

# The service, the database and their libraries take seconds to import: a verb does so when it runs.
if TYPE_CHECKING:
    from aiohttp import web

    from underpass_control.alerts.mail import MailServer
    from underpass_control.http.tls import ShownCertificate
    from underpass_control.oidc.configuration import Configuration
    from underpass_control.storage.database import Database
    from underpass_control.tracing import TracesSettings

# A century; 0 stands for longer.
_MOST_DAYS, _MOST_HOURS = 36_500.0, 876_000.0
_MOST_WAIT_S = 86_400.0
_MOST_RATE = 1e6

app = typer.Typer(
    name="underpass-control",
    help="The Underpass control service: where vehicles are, and what capacity they get.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(tokens, name="token")
app.add_typer(users, name="user")
app.add_typer(tenants, name="tenant")
app.add_typer(enrolments, name="enrolment")
app.add_typer(obstructions, name="obstruction")
app.add_typer(beams, name="beam")
app.add_typer(terminals, name="terminal")
app.add_typer(positions, name="position")
app.add_typer(nodes, name="node")
app.add_typer(links, name="link")
app.add_typer(streams, name="stream")
app.add_typer(blockages, name="blockage")
app.add_typer(node_settings, name="settings")
app.add_typer(rollouts, name="rollout")
app.add_typer(plans, name="plan")
app.add_typer(ledger, name="ledger")
app.add_typer(slices, name="slice")
app.command()(functions_agent)
app.command()(fairness)
app.command()(replay)
app.command()(announce)


def _option(variable: str, text: str, *names: str, **bounds: Any) -> Any:
    """An option of `serve`, which a variable of the environment sets, too."""
    return typer.Option(*names, envvar=f"UNDERPASS_{variable}", help=text, **bounds)


def _days(variable: str, text: str) -> Any:
    """An option that says for how many days something is kept."""
    return _option(variable, text, min=0, max=_MOST_DAYS)


@app.command()
def serve(
    database: DatabaseOption = DEFAULT_DATABASE,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8470,
    migrate_first: Annotated[
        bool, typer.Option("--migrate/--no-migrate", help="Bring the schema up at the start.")
    ] = True,
    keep_positions_days: Annotated[
        float,
        _days(
            "KEEP_POSITIONS_DAYS",
            "Delete older position reports, all but each terminal's newest; 0 keeps them.",
        ),
    ] = 30,
    keep_usage_days: Annotated[
        float, _days("KEEP_USAGE_DAYS", "Delete what links carried longer ago; 0 keeps it.")
    ] = 30,
    keep_plans_days: Annotated[
        float,
        _days(
            "KEEP_PLANS_DAYS",
            "Delete plans that ended longer ago, all but each link's newest; 0 keeps them.",
        ),
    ] = 2,
    keep_ledger_days: Annotated[
        float,
        _days(
            "KEEP_LEDGER_DAYS",
            "Delete older entries of the ledger, balances unchanged; 0 keeps them.",
        ),
    ] = 400,
    keep_audit_days: Annotated[
        float, _days("KEEP_AUDIT_DAYS", "Delete older entries of the log of changes; 0 keeps them.")
    ] = 400,
    session_idle_hours: Annotated[
        float,
        _option(
            "SESSION_IDLE_HOURS",
            "A user who has asked nothing for so long has to sign in again.",
            min=0.01,
            max=_MOST_HOURS,
        ),
    ] = 8,
    session_hours: Annotated[
        float,
        _option(
            "SESSION_HOURS",
            "A user who signed in so long ago has to sign in again.",
            min=0.01,
            max=_MOST_HOURS,
        ),
    ] = 168,
    settle_within_s: Annotated[
        float,
        _option(
            "SETTLE_WITHIN_SECONDS",
            "Wait so long for the reports of a terminal that is not heard.",
            "--settle-within-seconds",
            min=0,
            max=_MOST_WAIT_S,
        ),
    ] = 120,
    forgive_after_hours: Annotated[
        float,
        _option(
            "FORGIVE_AFTER_HOURS",
            "Forgive debts that are older; 0 keeps them until they are repaid.",
            min=0,
            max=_MOST_HOURS,
        ),
    ] = 24,
    token_requests_per_s: Annotated[
        float,
        _option(
            "TOKEN_REQUESTS_PER_SECOND",
            "What one token may ask; four times as much at once.",
            "--token-requests-per-second",
            min=1,
            max=_MOST_RATE,
        ),
    ] = 500,
    address_requests_per_s: Annotated[
        float,
        _option(
            "ADDRESS_REQUESTS_PER_SECOND",
            "What all without a known token may ask from one address.",
            "--address-requests-per-second",
            min=1,
            max=_MOST_RATE,
        ),
    ] = 50,
    trusted_proxies: Annotated[
        str,
        _option(
            "TRUSTED_PROXIES",
            "Reverse proxies whose X-Forwarded-For counts: networks, with commas between.",
        ),
    ] = "",
    tls_certificate: Annotated[
        Path | None,
        _option(
            "TLS_CERTIFICATE", "Certificate with its chain, PEM: HTTPS without a reverse proxy."
        ),
    ] = None,
    tls_key: Annotated[Path | None, _option("TLS_KEY", "Its private key, PEM.")] = None,
    authority: Annotated[
        Path | None,
        _option("AUTHORITY", "Folder of `underpass pki init`: nodes are enrolled with it."),
    ] = None,
    underpass_program: Annotated[
        str, _option("PROGRAM", "The program that works on it.", "--underpass")
    ] = "underpass",
    enrolment_certificate: Annotated[
        Path | None,
        _option(
            "ENROLMENT_CERTIFICATE",
            "What new nodes know the service by: a certificate that its TLS shows."
            " Default: the authority's.",
        ),
    ] = None,
    certificate_days: Annotated[
        int, _option("CERTIFICATE_DAYS", "Validity of the certificates of nodes.", min=1, max=3650)
    ] = 365,
    webhook_networks: Annotated[
        str,
        _option(
            "WEBHOOK_NETWORKS",
            "Networks, not public, that webhooks of alerts may go to: with commas between.",
        ),
    ] = "",
    oidc: Annotated[
        Path | None,
        _option("OIDC", "The OpenID Connect provider that users sign in by: a TOML file."),
    ] = None,
    public_url: Annotated[
        str, _option("PUBLIC_URL", "Where browsers find the console; for --oidc.")
    ] = "",
    mail_server: Annotated[
        str,
        _option(
            "MAIL_SERVER",
            "Where mails of alerts are handed in: smtp://HOST or smtps://USER:PASSWORD@HOST.",
        ),
    ] = "",
    mail_from: Annotated[str, _option("MAIL_FROM", "The address that mails are from.")] = "",
    traces: Annotated[
        str,
        _option("TRACES", "Send traces (OpenTelemetry) to this collector: http(s)://HOST:4318."),
    ] = "",
    traces_ca: Annotated[
        Path | None,
        _option(
            "TRACES_CA",
            "Authorities that its certificate is judged by, PEM. Default: the system's.",
        ),
    ] = None,
    traces_ratio: Annotated[
        float,
        _option(
            "TRACES_RATIO",
            "Part of the requests and plans that begin a trace of their own.",
            min=0,
            max=1,
        ),
    ] = 0.01,
    traces_per_s: Annotated[
        float,
        _option(
            "TRACES_PER_SECOND",
            "Traces begun or gone along with at most, whoever asks for them.",
            "--traces-per-second",
            min=0.01,
            max=1000,
        ),
    ] = 10,
    log_format: Annotated[
        logs.Format, _option("LOG_FORMAT", "For people or programs.")
    ] = logs.Format.CONSOLE,
) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Example: underpass-control serve --database sqlite:////var/lib/underpass/control.db
    """
    from aiohttp import web

    from underpass_control.garbage import collect_seldom
    from underpass_control.service import Service
    from underpass_control.storage import schema
    from underpass_control.storage.database import DatabaseLostError

    settings = Settings(
        keep_positions_s=keep_positions_days * 86_400 or None,
        keep_usage_s=keep_usage_days * 86_400 or None,
        keep_plans_s=keep_plans_days * 86_400 or None,
        keep_ledger_s=keep_ledger_days * 86_400 or None,
        keep_audit_s=keep_audit_days * 86_400 or None,
        session_idle_s=session_idle_hours * 3_600,
        session_lasts_s=session_hours * 3_600,
        settle_within_s=settle_within_s,
        forgive_after_s=forgive_after_hours * 3_600 or None,
        token_requests_per_s=token_requests_per_s,
        address_requests_per_s=address_requests_per_s,
        authority=authority,
        underpass_program=underpass_program,
        enrolment_certificate=enrolment_certificate,
        certificate_days=certificate_days,
        trusted_proxies=_networks("--trusted-proxies", trusted_proxies),
        provider=_provider(oidc, public_url),
        webhook_networks=_networks("--webhook-networks", webhook_networks),
        mail_server=_mail_server(mail_server, mail_from),
        traces=_traces(traces, traces_ca, traces_ratio, traces_per_s),
    )
    logs.configure(log_format)
    shown = _tls(tls_certificate, tls_key)

    async def application() -> web.Application:
        opened = open_database(database)
        try:
            if migrate_first:
                await schema.migrate(opened)
            await schema.check_schema(opened)
        except BaseException:
            await opened.close()
            raise
        made = Service(opened, settings, shown).application()
        if shown is not None:
            made.cleanup_ctx.append(shown.following)
        return made

    collect_seldom()
    context = None if shown is None else shown.context
    try:
        web.run_app(application(), host=host, port=port, access_log=None, ssl_context=context)
    except (DatabaseLostError, schema.SchemaError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"cannot listen on {host}, port {port}: {error.strerror or error}")


def _tls(certificate: Path | None, key: Path | None) -> ShownCertificate | None:
    from underpass_control.http.tls import ShownCertificate

    if (certificate is None) != (key is None):
        _fail("--tls-certificate and --tls-key belong together")
    if certificate is None or key is None:
        return None
    try:
        return ShownCertificate(certificate, key)
    except OSError as error:
        _fail(f"--tls-certificate {certificate}: {error}")


def _provider(path: Path | None, public_url: str) -> Configuration | None:
    if path is None:
        return None
    from underpass_control.oidc.configuration import ConfigurationError, read_configuration

    try:
        return read_configuration(path, public_url)
    except ConfigurationError as error:
        _fail(f"--oidc {error}")


def _mail_server(url: str, sender: str) -> MailServer | None:
    if not url:
        return None
    from underpass_control.alerts.mail import mail_server_of

    try:
        return mail_server_of(url, sender)
    except ValueError as error:
        raise typer.BadParameter(f"--mail-server, --mail-from: {error}") from error


def _traces(
    url: str, ca_file: Path | None, ratio: float, most_per_s: float
) -> TracesSettings | None:
    if not url:
        return None
    from urllib.parse import urlsplit

    from underpass_control.tracing import TracesSettings

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise typer.BadParameter(f"--traces: {url!r} is not http(s)://HOST[:PORT][/PREFIX]")
    if ca_file is not None and not ca_file.is_file():
        _fail(f"--traces-ca {ca_file}: there is no such file")
    return TracesSettings(url, None if ca_file is None else str(ca_file), ratio, most_per_s)


def _networks(option: str, text: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(one.strip()) for one in text.split(",") if one.strip())
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from error


@app.command()
def migrate(
    database: DatabaseOption = DEFAULT_DATABASE,
    down_to: Annotated[
        str | None, typer.Option(help="Go down to this revision; `base` leaves nothing.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the database's schema up to the newest, or down.

    Example: underpass-control migrate --database postgresql://control@db/control
    """

    from underpass_control.storage import schema

    async def run(opened: Database) -> str | None:
        if down_to is None:
            with bars() as bar:
                task = bar.add_task("migrations", total=None)
                await schema.migrate(
                    opened, told=lambda done, of: bar.update(task, completed=done, total=of)
                )
        else:
            await schema.migrate_down(opened, down_to)
        return await schema.revision(opened)

    revision = with_database(database, run, needs_schema=False)
    tell({"revision": revision}, f"the schema is {revision or 'empty'}", as_json=as_json)
