"""The endpoints for the agents of sites: they read the slices to run, and report their state."""

from __future__ import annotations

from http import HTTPStatus

from underpass_control.http import slice_models as models
from underpass_control.http.endpoint import AGENTS, LARGE, Answer, Call, Endpoint
from underpass_control.storage import slices
from underpass_control.storage.database import Database


class SliceAgents:
    """The endpoints of agents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        path = "/v1/sites/{site}/slices"
        return [
            Endpoint(
                "GET",
                path,
                "How the slices of a site are to be, for its agent",
                self._desired,
                AGENTS,
                answers=models.DesiredSlices,
            ),
            Endpoint(
                "POST",
                path,
                "How the slices of a site are, by its agent",
                self._report,
                AGENTS,
                body=models.SliceReports,
                most=LARGE,
                status=HTTPStatus.ACCEPTED,
            ),
        ]

    async def _desired(self, call: Call) -> models.DesiredSlices:
        async with self._database.reading() as connection:
            rows = await slices.of_site(connection, call.path["site"])
        return models.DesiredSlices(
            slices=[
                models.DesiredSlice(
                    name=row.name,
                    tenant=row.tenant_id,
                    number=row.number,
                    revision=row.revision,
                    ending=row.ending,
                    body=row.body,
                )
                for row in rows
            ]
        )

    async def _report(self, call: Call) -> Answer:
        now_ms = self._database.clock.now_ms()
        async with self._database.transaction() as connection:
            for one in call.body(models.SliceReports).slices:
                reported = slices.Reported(
                    one.name,
                    one.revision,
                    one.state,
                    one.detail,
                    [each.model_dump() for each in one.containers],
                )
                await slices.report(connection, call.path["site"], reported, now_ms)
        return Answer(None, HTTPStatus.ACCEPTED)
