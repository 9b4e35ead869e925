"""The operator's command line."""

from __future__ import annotations

import ssl
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from underpass_control import logs
from underpass_control.commands.accounts import tokens, users
from underpass_control.commands.announce import announce
from underpass_control.commands.console import JsonOption, tell
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
from underpass_control.commands.observed import blockages, links, nodes
from underpass_control.commands.obstructions import obstructions
from underpass_control.commands.plans import plans
from underpass_control.commands.positions import positions
from underpass_control.commands.registry import beams, terminals
from underpass_control.commands.replay import replay
from underpass_control.commands.rollouts import rollouts
from underpass_control.commands.settings import node_settings
from underpass_control.commands.tenants import tenants
from underpass_control.http.limits import Network
from underpass_control.settings import Settings

# The service, its database and what they need take seconds to import: a verb does so when it runs.
if TYPE_CHECKING:
    from aiohttp import web

    from underpass_control.alerts.mail import MailServer
    from underpass_control.oidc.configuration import Configuration
    from underpass_control.storage.database import Database
    from underpass_control.tracing import TracesSettings

# A century: what is meant to last longer has 0.
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
        typer.Option(
            min=0,
            max=_MOST_DAYS,
            envvar="UNDERPASS_KEEP_POSITIONS_DAYS",
            help="Delete older position reports, all but each terminal's newest; 0 keeps them.",
        ),
    ] = 30,
    keep_usage_days: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MOST_DAYS,
            envvar="UNDERPASS_KEEP_USAGE_DAYS",
            help="Delete what links carried longer ago; 0 keeps it.",
        ),
    ] = 30,
    keep_plans_days: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MOST_DAYS,
            envvar="UNDERPASS_KEEP_PLANS_DAYS",
            help="Delete plans that ended longer ago, all but each link's newest; 0 keeps them.",
        ),
    ] = 2,
    keep_ledger_days: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MOST_DAYS,
            envvar="UNDERPASS_KEEP_LEDGER_DAYS",
            help="Delete older entries of the ledger, balances unchanged; 0 keeps them.",
        ),
    ] = 400,
    keep_audit_days: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MOST_DAYS,
            envvar="UNDERPASS_KEEP_AUDIT_DAYS",
            help="Delete older entries of the log of changes; 0 keeps them.",
        ),
    ] = 400,
    session_idle_hours: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=_MOST_HOURS,
            envvar="UNDERPASS_SESSION_IDLE_HOURS",
            help="A user who has asked nothing for so long has to sign in again.",
        ),
    ] = 8,
    session_hours: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=_MOST_HOURS,
            envvar="UNDERPASS_SESSION_HOURS",
            help="A user who signed in so long ago has to sign in again.",
        ),
    ] = 168,
    settle_within_s: Annotated[
        float,
        typer.Option(
            "--settle-within-seconds",
            min=0,
            max=_MOST_WAIT_S,
            envvar="UNDERPASS_SETTLE_WITHIN_SECONDS",
            help="Wait so long for the reports of a terminal that is not heard.",
        ),
    ] = 120,
    forgive_after_hours: Annotated[
        float,
        typer.Option(
            min=0,
            max=_MOST_HOURS,
            envvar="UNDERPASS_FORGIVE_AFTER_HOURS",
            help="Forgive debts that are older; 0 keeps them until they are repaid.",
        ),
    ] = 24,
    token_requests_per_s: Annotated[
        float,
        typer.Option(
            "--token-requests-per-second",
            min=1,
            max=_MOST_RATE,
            envvar="UNDERPASS_TOKEN_REQUESTS_PER_SECOND",
            help="What one token may ask; four times as much at once.",
        ),
    ] = 500,
    address_requests_per_s: Annotated[
        float,
        typer.Option(
            "--address-requests-per-second",
            min=1,
            max=_MOST_RATE,
            envvar="UNDERPASS_ADDRESS_REQUESTS_PER_SECOND",
            help="What all without a known token may ask from one address.",
        ),
    ] = 50,
    trusted_proxies: Annotated[
        str,
        typer.Option(
            envvar="UNDERPASS_TRUSTED_PROXIES",
            help="Reverse proxies whose X-Forwarded-For counts: networks, with commas between.",
        ),
    ] = "",
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            envvar="UNDERPASS_TLS_CERTIFICATE",
            help="Certificate with its chain, PEM: HTTPS without a reverse proxy.",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(envvar="UNDERPASS_TLS_KEY", help="Its private key, PEM.")
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option(
            envvar="UNDERPASS_AUTHORITY",
            help="Folder of `underpass pki init`: nodes are enrolled with it.",
        ),
    ] = None,
    underpass_program: Annotated[
        str,
        typer.Option(
            "--underpass", envvar="UNDERPASS_PROGRAM", help="The program that works on it."
        ),
    ] = "underpass",
    enrolment_certificate: Annotated[
        Path | None,
        typer.Option(
            envvar="UNDERPASS_ENROLMENT_CERTIFICATE",
            help="What new nodes know the service by: a certificate that its TLS shows. Default:"
            " the authority's.",
        ),
    ] = None,
    certificate_days: Annotated[
        int,
        typer.Option(
            min=1,
            max=3650,
            envvar="UNDERPASS_CERTIFICATE_DAYS",
            help="Validity of the certificates of nodes.",
        ),
    ] = 365,
    webhook_networks: Annotated[
        str,
        typer.Option(
            envvar="UNDERPASS_WEBHOOK_NETWORKS",
            help="Networks, not public, that webhooks of alerts may go to: with commas between.",
        ),
    ] = "",
    oidc: Annotated[
        Path | None,
        typer.Option(
            envvar="UNDERPASS_OIDC",
            help="The OpenID Connect provider that users sign in by: a TOML file.",
        ),
    ] = None,
    public_url: Annotated[
        str,
        typer.Option(
            envvar="UNDERPASS_PUBLIC_URL", help="Where browsers find the console; for --oidc."
        ),
    ] = "",
    mail_server: Annotated[
        str,
        typer.Option(
            envvar="UNDERPASS_MAIL_SERVER",
            help="Where mails of alerts are handed in: smtp://HOST or smtps://USER:PASSWORD@HOST.",
        ),
    ] = "",
    mail_from: Annotated[
        str,
        typer.Option(envvar="UNDERPASS_MAIL_FROM", help="The address that mails are from."),
    ] = "",
    traces: Annotated[
        str,
        typer.Option(
            envvar="UNDERPASS_TRACES",
            help="Send traces (OpenTelemetry) to this collector: http(s)://HOST:4318.",
        ),
    ] = "",
    traces_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="UNDERPASS_TRACES_CA",
            help="Authorities that its certificate is judged by, PEM. Default: the system's.",
        ),
    ] = None,
    traces_ratio: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            envvar="UNDERPASS_TRACES_RATIO",
            help="Part of the requests and plans that begin a trace of their own.",
        ),
    ] = 0.01,
    traces_per_s: Annotated[
        float,
        typer.Option(
            "--traces-per-second",
            min=0.01,
            max=1000,
            envvar="UNDERPASS_TRACES_PER_SECOND",
            help="Traces begun or gone along with at most, whoever asks for them.",
        ),
    ] = 10,
    log_format: Annotated[
        logs.Format, typer.Option(envvar="UNDERPASS_LOG_FORMAT", help="For people or programs.")
    ] = logs.Format.CONSOLE,
) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Example: underpass-control serve --database sqlite:////var/lib/underpass/control.db
    """
    from aiohttp import web

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
    context = _tls(tls_certificate, tls_key)

    async def application() -> web.Application:
        opened = open_database(database)
        try:
            if migrate_first:
                await schema.migrate(opened)
            await schema.check_schema(opened)
        except BaseException:
            await opened.close()
            raise
        return Service(opened, settings).application()

    try:
        web.run_app(application(), host=host, port=port, access_log=None, ssl_context=context)
    except (DatabaseLostError, schema.SchemaError) as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"cannot listen on {host}, port {port}: {error.strerror or error}")


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if (certificate is None) != (key is None):
        _fail("--tls-certificate and --tls-key belong together")
    if certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        _fail(f"--tls-certificate {certificate}: {error}")
    return context


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
            await schema.migrate(opened)
        else:
            await schema.migrate_down(opened, down_to)
        return await schema.revision(opened)

    revision = with_database(database, run, needs_schema=False)
    tell({"revision": revision}, f"the schema is {revision or 'empty'}", as_json=as_json)
