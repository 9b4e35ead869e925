"""The service: the API over a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from underpass_control.access.passwords import Passwords
from underpass_control.access.vehicles import VehiclesOfTenants
from underpass_control.alerts.sending import Sending
from underpass_control.alerts.watch import watch_for_ever
from underpass_control.certificates import OwnCertificates
from underpass_control.enrolment.authority import Authority
from underpass_control.events import Events
from underpass_control.http import page
from underpass_control.http.alerts import Alerts
from underpass_control.http.blockages import Blockages
from underpass_control.http.callers import Callers
from underpass_control.http.capacity import CapacityOfBeam
from underpass_control.http.changes import LogOfChanges
from underpass_control.http.console import ConsolePages
from underpass_control.http.endpoint import route
from underpass_control.http.enrolments import Enrolments
from underpass_control.http.events import EventStreams
from underpass_control.http.interventions import Interventions
from underpass_control.http.ledger import LedgerOfBeam
from underpass_control.http.links import Links
from underpass_control.http.maps import Maps
from underpass_control.http.nodes import Nodes
from underpass_control.http.observed import observed
from underpass_control.http.obstructions import Obstructions
from underpass_control.http.plan_stream import PlanStreams
from underpass_control.http.plans import Plans
from underpass_control.http.positions import Positions
from underpass_control.http.problem import problems
from underpass_control.http.provider_sign_in import ProviderSignIn
from underpass_control.http.registry import Registry, terminal_state
from underpass_control.http.reports import Reports
from underpass_control.http.rollouts import Rollouts
from underpass_control.http.routes import Routes
from underpass_control.http.sending import sent
from underpass_control.http.sessions import Sessions
from underpass_control.http.settings import NodeSettings
from underpass_control.http.shares import Shares
from underpass_control.http.sky import Sky
from underpass_control.http.slice_agents import SliceAgents
from underpass_control.http.slices import Slices
from underpass_control.http.status import ServiceStatus
from underpass_control.http.streams import Streams
from underpass_control.http.tenants import Tenants
from underpass_control.http.terminal_files import TerminalFiles
from underpass_control.http.tiles import MapTiles
from underpass_control.http.tls import ShownCertificate
from underpass_control.http.tokens import Tokens
from underpass_control.http.users import Users
from underpass_control.http.what_if import WhatIf
from underpass_control.metrics import Metrics
from underpass_control.opensand.station import Station
from underpass_control.planning.controllers import BeamControllers
from underpass_control.planning.newest_plans import NewestPlans
from underpass_control.pruning import prune_for_ever
from underpass_control.questions import Questions
from underpass_control.reports.intake import Intake
from underpass_control.rollouts.advance import advance_for_ever
from underpass_control.settings import Settings
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database
from underpass_control.storage.positions import PositionWriter
from underpass_control.tracing import Traces


class Service:
    """The HTTP application, and what it needs while it runs."""

    def __init__(
        self, database: Database, settings: Settings, shown: ShownCertificate | None = None
    ) -> None:
        """Take the HTTPS certificate, if this process terminates TLS."""
        self._database = database
        self._settings = settings
        self._metrics = Metrics()
        self._certificates = OwnCertificates(self._metrics, settings, shown)
        self._events = Events()
        self._changes = Changes(database, self._events.tell, self._events.interrupt)
        self._writer = PositionWriter(self._changes)
        self._metrics.positions_waiting.set_function(lambda: self._writer.waiting)
        self._metrics.clock_offset.set_function(lambda: database.clock.offset_ms / 1000)
        intake = Intake(database, self._changes, self._writer, self._metrics, terminal_state)
        self._traces = Traces(settings.traces)
        self._newest_plans = NewestPlans(database, self._metrics)
        self.controllers = BeamControllers(
            database, self._changes, self._metrics, settings, self._newest_plans, self._traces
        )
        self._station = Station(
            database, self._changes, self._metrics, held=lambda: self.controllers.followed
        )
        self._vehicles = VehiclesOfTenants(database, self._events)
        questions = Questions(self._changes, is_alone=database.is_sqlite)
        for listener in (
            self._newest_plans,
            self.controllers,
            self._station,
            self._vehicles,
            questions,
        ):
            self._events.listen(listener)
        self._callers = Callers(database, settings)
        passwords = Passwords()
        status = ServiceStatus(database, self._metrics)
        self._plan_streams = PlanStreams(
            database, self._newest_plans, questions, self._metrics, self._callers, self._traces
        )
        self.endpoints = [
            *Registry(database, self._changes, self._metrics).endpoints(),
            *TerminalFiles(database, self._changes).endpoints(),
            *Positions(database, self._writer, self._metrics).endpoints(),
            *Obstructions(database, self._changes).endpoints(),
            *Sky(database).endpoints(),
            *Maps(database, self._changes).endpoints(),
            *MapTiles(database, self._changes).endpoints(),
            *Reports(intake, database.clock).endpoints(),
            *LedgerOfBeam(database, self._changes).endpoints(),
            *Links(database).endpoints(),
            *Streams(database, questions).endpoints(),
            *Nodes(database).endpoints(),
            *Blockages(database, self._changes).endpoints(),
            *Interventions(database, self._changes).endpoints(),
            *Alerts(database, self._changes, settings).endpoints(),
            *Routes(database, self._changes).endpoints(),
            *NodeSettings(database, self._changes).endpoints(),
            *Rollouts(database, self._changes).endpoints(),
            *EventStreams(self._events, self._metrics, self._callers).endpoints(),
            *Plans(database).endpoints(),
            *CapacityOfBeam(database, self._changes).endpoints(),
            *WhatIf(database).endpoints(),
            *Shares(database).endpoints(),
            *Sessions(database, self._callers, passwords, settings, self._metrics).endpoints(),
            *Users(database, self._callers, passwords).endpoints(),
            *Tokens(database, self._callers).endpoints(),
            *Tenants(database).endpoints(),
            *Slices(database).endpoints(),
            *SliceAgents(database).endpoints(),
            *Enrolments(database, _authority(settings)).endpoints(),
            *LogOfChanges(database).endpoints(),
            *self._plan_streams.endpoints(),
            *status.endpoints(),
        ]
        status.describe(self.endpoints)
        self._sign_in = None
        if settings.provider is not None:
            self._sign_in = ProviderSignIn(
                database, self._callers, settings.provider, settings, self._metrics
            )

    def application(self) -> web.Application:
        """Return the application, which closes the database at its end."""
        counted = observed(self._metrics, self._callers.address)
        application = web.Application(middlewares=[sent, counted, problems])
        application.add_routes(
            route(one, self._callers, self._database, self._traces) for one in self.endpoints
        )
        application.add_routes(page.routes(self._callers))
        label = None
        if self._settings.provider is not None and self._sign_in is not None:
            label = self._settings.provider.file.label
            application.add_routes(self._sign_in.routes())
        application.add_routes(ConsolePages(self._callers, provider=label).routes())
        application.cleanup_ctx.append(self._run)
        application.on_shutdown.append(self._end_streams)
        return application

    async def _run(self, _application: web.Application) -> AsyncIterator[None]:
        await self._changes.start()
        self._writer.start()
        self.controllers.start()
        self._station.start()
        self._callers.start()
        self._vehicles.start()
        settings, metrics = self._settings, self._metrics
        sending = Sending(self._database, metrics, settings.webhook_networks, settings.mail_server)
        every_s = settings.look_for_alerts_every_s
        beside = [
            asyncio.create_task(one)
            for one in (
                prune_for_ever(self._database, self._changes, settings, metrics),
                watch_for_ever(self._database, self._changes, metrics, every_s),
                sending.send_for_ever(),
                self._certificates.watch_for_ever(),
                advance_for_ever(
                    self._database, self._changes, metrics, settings.advance_rollouts_every_s
                ),
            )
        ]
        yield
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        if self._sign_in is not None:
            await self._sign_in.close()
        await self._vehicles.close()
        await self._callers.close()
        await self._writer.close()
        await self._station.close()
        await self.controllers.close()
        await self._changes.close()
        await self._database.close()
        await self._traces.close()

    async def _end_streams(self, _application: web.Application) -> None:
        self._events.close()
        self._plan_streams.close()


def _authority(settings: Settings) -> Authority | None:
    if settings.authority is None:
        return None
    return Authority(
        settings.authority,
        settings.underpass_program,
        days=settings.certificate_days,
        certificate=settings.enrolment_certificate,
    )
