"""Enrolments: made and revoked by operators, used by nodes; and the nodes' certificates."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from hashlib import sha256
from http import HTTPStatus
from typing import Any, TypeVar

from aiohttp import web
from sqlalchemy.engine import Row

from underpass_control.access import enrolments
from underpass_control.access.audit import Actor, Changed
from underpass_control.enrolment import configuration
from underpass_control.enrolment.authority import (
    Authority,
    AuthorityError,
    RefusedRequestError,
    Signed,
)
from underpass_control.http import enrolment_models as models
from underpass_control.http.conditions import etag, is_known
from underpass_control.http.cursor import next_page, number_after
from underpass_control.http.endpoint import GATEWAYS, MIDDLE, OPERATORS, Answer, Call, Endpoint
from underpass_control.http.limits import Buckets, admit
from underpass_control.http.models import MOST_NODE
from underpass_control.http.problem import Problem
from underpass_control.instants import milliseconds, moment_of
from underpass_control.storage import attachments, registry
from underpass_control.storage.database import Database

# The longest life of an enrolment: a forgotten token must soon be useless.
_LONGEST_MS = 90 * 86_400_000
# Each request starts a program, so one address may make this many at once, and then one every 2 s.
# A whole fleet may come from one address.
_PER_S = 0.5
_BURST = 40
# A gateway passes on its terminals' requests, one at a time.
_GATEWAY_PER_S = 5.0
_GATEWAY_BURST = 100
# A revocation list has some 50 bytes for each certificate.
_LIST_TYPE = "application/x-pem-file"

T = TypeVar("T")


class Enrolments:
    """The endpoints of enrolments and of the nodes' certificates."""

    def __init__(self, database: Database, authority: Authority | None) -> None:
        self._database = database
        self._authority = authority
        self._of_address = Buckets(_PER_S, _BURST)
        self._of_gateway = Buckets(_GATEWAY_PER_S, _GATEWAY_BURST)

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        # Without an authority, or while it cannot work.
        refused = [HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE]
        return [
            Endpoint(
                "GET",
                "/v1/enrolments",
                "All enrolments, without their tokens",
                self._page,
                OPERATORS,
                query=models.EnrolmentsQuery,
                answers=models.EnrolmentList,
            ),
            Endpoint(
                "POST",
                "/v1/enrolments",
                "Let a node be enrolled: the token is shown once",
                self._create,
                OPERATORS,
                body=models.EnrolmentBody,
                most=MIDDLE,
                answers=models.NewEnrolment,
                status=HTTPStatus.CREATED,
                problems=[HTTPStatus.CONFLICT],
            ),
            Endpoint(
                "DELETE",
                "/v1/enrolments/{enrolment}",
                "Revoke an enrolment; certificates that it has led to stay",
                self._revoke,
                OPERATORS,
            ),
            Endpoint(
                "DELETE",
                "/v1/nodes/{node}/certificates",
                "Revoke all certificates of a node: its sessions end",
                self._revoke_certificates,
                OPERATORS,
                answers=models.Revoked,
                problems=[HTTPStatus.CONFLICT],
            ),
            Endpoint(
                "POST",
                "/v1/node/enrolment",
                "Become a node, by the token of an enrolment",
                self._enrol,
                None,
                body=models.EnrolBody,
                answers=models.Enrolled,
                problems=[HTTPStatus.FORBIDDEN, *refused],
            ),
            Endpoint(
                "POST",
                "/v1/node/certificate",
                "Renew a node's certificate, by a request that its key has signed",
                self._renew,
                None,
                body=models.RenewBody,
                answers=models.Certified,
                problems=[HTTPStatus.FORBIDDEN, *refused],
            ),
            Endpoint(
                "POST",
                "/v1/gateways/{gateway}/certificates",
                "Renew the certificate of a terminal, by the request that it has sent its gateway",
                self._pass_on,
                GATEWAYS,
                body=models.PassedOnBody,
                answers=models.Certified,
                problems=[*refused],
            ),
            Endpoint(
                "GET",
                "/v1/gateways/{gateway}/terminals",
                "The terminals of a gateway, as its configuration has them",
                self._terminals,
                GATEWAYS,
                headers=["If-None-Match"],
                answers=models.TerminalListing,
                others=[HTTPStatus.NOT_MODIFIED],
            ),
            Endpoint(
                "GET",
                "/v1/authority/revocations",
                "The certificates that are revoked (RFC 5280), signed by the authority",
                self._revocations,
                None,
                headers=["If-None-Match"],
                others=[HTTPStatus.NOT_MODIFIED],
                media_type=_LIST_TYPE,
                problems=refused,
            ),
        ]

    async def _page(self, call: Call) -> models.EnrolmentList:
        query = call.query(models.EnrolmentsQuery)
        async with self._database.reading() as connection:
            rows = await enrolments.page_of_enrolments(
                connection,
                node=query.node,
                after=number_after(query.cursor),
                limit=query.limit,
                newest_first=query.order == "newest",
            )
        last = next_page(rows, query.limit, lambda row: row.id)
        return models.EnrolmentList(enrolments=[_shown(row) for row in rows], next=last)

    async def _create(self, call: Call) -> Answer:
        body = call.body(models.EnrolmentBody)
        now_ms, expires_ms = _now_ms(), milliseconds(body.expires)
        if not now_ms < expires_ms <= now_ms + _LONGEST_MS:
            detail = f"it must expire within {_LONGEST_MS // 86_400_000} days from now"
            raise _wrong("expires", detail)
        try:
            configuration.check(body.configuration, body.node)
        except configuration.ConfigurationError as error:
            raise _wrong("configuration", f"the configuration: {error}") from error
        try:
            fingerprint = self._working().fingerprint()
        except AuthorityError as error:
            raise _away(error) from error
        async with self._database.transaction() as connection:
            number, token = await enrolments.create_enrolment(
                connection,
                node=body.node,
                configuration=body.configuration,
                fingerprint=fingerprint,
                now_ms=now_ms,
                expires_ms=expires_ms,
            )
            row = await enrolments.get_enrolment(connection, number)
            assert row is not None, "it has just been made"
            made = _shown(row)
            await call.record(connection, _changed("create", made))
        shown = models.NewEnrolment(**made.model_dump(), token=token)
        return Answer(shown, HTTPStatus.CREATED, {"Cache-Control": "no-store"})

    async def _revoke(self, call: Call) -> Answer:
        number = call.path_number("enrolment")
        async with self._database.transaction() as connection:
            if not await enrolments.revoke_enrolment(connection, number, _now_ms()):
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no enrolment {number} in force")
            row = await enrolments.get_enrolment(connection, number)
            assert row is not None, "it has just been revoked"
            await call.record(connection, _changed("revoke", _shown(row)))
        return Answer(None, HTTPStatus.NO_CONTENT)

    async def _revoke_certificates(self, call: Call) -> models.Revoked:
        node = call.path_number("node")
        if not 1 <= node <= MOST_NODE:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no node {node}")
        target = f"/v1/nodes/{node}/certificates"
        # Begin the transaction first: a revocation that cannot be recorded must not be made. It
        # locks nothing meanwhile.
        async with self._database.transaction() as connection:
            try:
                revoked = await _answered(self._working().revoke(node))
            except RefusedRequestError as error:
                raise Problem(HTTPStatus.CONFLICT, str(error)) from error
            changed = Changed("revoke", target, None, None, {"revoked": revoked})
            await call.record(connection, changed)
        return models.Revoked(revoked=revoked)

    async def _enrol(self, call: Call) -> Answer:
        body = call.body(models.EnrolBody)
        authority = self._working()
        admit(self._of_address, call.address)
        async with self._database.reading() as connection:
            row = await enrolments.find_enrolment(connection, body.token, _now_ms())
        if row is None:
            raise _unknown()
        try:
            key = await _answered(authority.key_of(row.node, body.request))
            await self._give(call, row, key)
            # Done last: if it is interrupted here, the node's next request completes it.
            signed = await _answered(authority.sign(row.node, body.request))
        except RefusedRequestError as error:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        shown = models.Enrolled(**_certified(signed), configuration=row.configuration)
        return Answer(shown, headers={"Cache-Control": "no-store"})

    async def _give(self, call: Call, row: Row[Any], key: str) -> None:
        """Assign an enrolment to a key; the same key may come again.

        Raises:
            Problem: 409, another key has it; 403, it has just been revoked.
        """
        now_ms = _now_ms()
        async with self._database.transaction() as connection:
            if await enrolments.use_enrolment(connection, row.id, key, now_ms):
                await enrolments.end_earlier(connection, row.node, row.id, now_ms)
                used = await enrolments.get_enrolment(connection, row.id)
                assert used is not None, "it has just been used"
                actor = Actor("enrolment", row.id, f"node {row.node}", call.address)
                await call.record(connection, _changed("use", _shown(used)), actor=actor)
                return
            found = await enrolments.get_enrolment(connection, row.id)
        if found is None or found.revoked_ms is not None:
            raise _unknown()
        if found.key_sha256 != key:
            detail = (
                "the token has been used by another key: if that was not this node, revoke the"
                " certificates of its number; then have another token made"
            )
            raise Problem(HTTPStatus.CONFLICT, detail)

    async def _renew(self, call: Call) -> Answer:
        body = call.body(models.RenewBody)
        authority = self._working()
        admit(self._of_address, call.address)
        try:
            signed = await _answered(authority.renew(body.request))
        except RefusedRequestError as error:
            raise Problem(HTTPStatus.FORBIDDEN, str(error)) from error
        return await self._renewed(call, signed)

    async def _pass_on(self, call: Call) -> Answer:
        """Renew a certificate for a gateway's terminal.

        Only the terminal can use the answer, since its key has signed the request. So a gateway's
        token gives no more power than over the terminals that are at it.
        """
        gateway, body = call.own_gateway(), call.body(models.PassedOnBody)
        authority = self._working()
        async with self._database.reading() as connection:
            found = await attachments.of_terminals(connection, [body.node])
        attachment = found.get(body.node)
        if attachment is None or not attachment.allows(gateway, _now_ms()):
            detail = f"terminal {body.node} is not at gateway {gateway}"
            raise Problem(HTTPStatus.FORBIDDEN, detail)
        admit(self._of_gateway, gateway)
        try:
            signed = await _answered(authority.renew(body.request, body.node))
        except RefusedRequestError as error:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        return await self._renewed(call, signed)

    async def _renewed(self, call: Call, signed: Signed) -> Answer:
        """Record a new certificate, and return it."""
        if signed.is_new:
            end = moment_of(signed.not_after_ms).isoformat()
            state = {"serial": signed.serial, "not_after": end}
            target = f"/v1/nodes/{signed.node}/certificates"
            actor = Actor("node", signed.node, f"node {signed.node}", call.address)
            async with self._database.transaction() as connection:
                await call.record(
                    connection, Changed("renew", target, None, None, state), actor=actor
                )
        return Answer(models.Certified(**_certified(signed)))

    async def _terminals(self, call: Call) -> Answer:
        gateway = call.own_gateway()
        async with self._database.reading() as connection:
            rows = await registry.terminals_of_gateway(connection, gateway)
        listing = models.TerminalListing(
            terminals=[
                models.ListedTerminal(
                    node=row.node,
                    weight=row.weight,
                    send_rate_bps=row.forward_maximum_bps,
                    receive_rate_bps=row.return_maximum_bps,
                )
                for row in rows
            ]
        )
        tag = etag(sha256(listing.model_dump_json().encode()).hexdigest())
        if is_known(call, tag):
            return Answer(None, HTTPStatus.NOT_MODIFIED, {"ETag": tag})
        return Answer(listing, headers={"ETag": tag})

    async def _revocations(self, call: Call) -> web.Response | Answer:
        try:
            text, mark = await self._working().revocations()
        except AuthorityError as error:
            raise _away(error) from error
        tag = etag(mark)
        if is_known(call, tag):
            return Answer(None, HTTPStatus.NOT_MODIFIED, {"ETag": tag})
        return web.Response(text=text, content_type=_LIST_TYPE, headers={"ETag": tag})

    def _working(self) -> Authority:
        if self._authority is None:
            detail = "this service has no authority: it is started with --authority"
            raise Problem(HTTPStatus.CONFLICT, detail)
        return self._authority


async def _answered(work: Awaitable[T]) -> T:
    """Return the authority's answer.

    Raises:
        Problem: 503, it cannot work.
        RefusedRequestError: It refuses.
    """
    try:
        return await work
    except AuthorityError as error:
        raise _away(error) from error


def _wrong(member: str, detail: str) -> Problem:
    """Return the problem of a wrong member of the body."""
    errors: list[dict[str, object]] = [{"pointer": f"/{member}", "detail": detail}]
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=errors)


def _unknown() -> Problem:
    detail = "the token is unknown, expired or revoked: have another one made"
    return Problem(HTTPStatus.FORBIDDEN, detail)


def _away(error: AuthorityError) -> Problem:
    later = {"Retry-After": "5"}
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers=later)


def _certified(signed: Signed) -> dict[str, Any]:
    return {
        "node": signed.node,
        "certificate": signed.certificate,
        "authority": signed.authority,
        "revocations": signed.revocations,
    }


def _shown(row: Row[Any]) -> models.Enrolment:
    state: dict[str, Any] = {"id": row.id, "node": row.node, "key_sha256": row.key_sha256}
    for name in ("created", "expires", "revoked", "used"):
        ms = getattr(row, f"{name}_ms")
        state[name] = None if ms is None else moment_of(ms)
    return models.Enrolment.model_validate(state)


def _changed(action: str, shown: models.Enrolment) -> Changed:
    state = shown.model_dump(mode="json", exclude_none=True)
    return Changed(action, f"/v1/enrolments/{shown.id}", None, None, state)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
