"""Which gateway each terminal is at, and how it moves to another.

A terminal is at the gateway that an operator names, or otherwise at the first one that reports of
it, in its own name or the terminal's. From there only an operator or the terminal can move it, so a
gateway's token gives power only over the terminals at it. A terminal moves by its *proof*: a MAC of
the gateway and a time, made with its own token.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import BigInteger, ColumnElement, func, literal, or_, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access.tokens import is_in_force
from underpass_control.roles import Role
from underpass_control.storage.models import Terminal, Token

# The gateway that a terminal is at, and to which its plans are sent, if there is one.
SERVED_BY: ColumnElement[int | None] = func.coalesce(Terminal.gateway, Terminal.heard_by)
# The most tokens of a terminal with which its proof is checked; usually an old and a new one.
_MOST_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Attachment:
    """The gateway that a terminal is at.

    Attributes:
        gateway: that an operator has named.
        heard_by: by which it was heard.
        former: where it was before.
        since_ms: since when it is at its gateway; None while only the gateway has reported of it,
            not the terminal itself.
    """

    gateway: int | None = None
    heard_by: int | None = None
    former: int | None = None
    since_ms: int | None = None

    @property
    def serving(self) -> int | None:
        """The gateway that it is at, as far as is known."""
        return self.heard_by if self.gateway is None else self.gateway

    def allows(self, gateway: int, at_ms: int) -> bool:
        """Tell whether a gateway may report of the terminal as of a time."""
        if self.serving in (None, gateway):
            return True
        # Reports from before its move may come late, by its former gateway.
        return gateway == self.former and self.since_ms is not None and at_ms < self.since_ms

    def moved(self, gateway: int, at_ms: int) -> Attachment:
        """Return it after a move."""
        return Attachment(self.gateway, gateway, self.serving, at_ms)


@dataclass(frozen=True, slots=True)
class Proof:
    """A terminal's word that it is at a gateway."""

    terminal: int
    gateway: int
    time_ms: int
    mac: bytes

    def moves(self, attachment: Attachment) -> bool:
        """Tell whether it moves the terminal; an old proof that is sent again does not."""
        return (
            attachment.gateway is None
            and attachment.heard_by != self.gateway
            and (attachment.since_ms is None or self.time_ms > attachment.since_ms)
        )


def mac_of(digest: bytes, terminal: int, gateway: int, time_ms: int) -> bytes:
    """Return the MAC by which a terminal proves its gateway (RFC 2104, with SHA-256).

    `digest` is the stored hash of its token.
    """
    text = f"underpass gateway {terminal} {gateway} {time_ms}"
    return hmac.digest(digest, text.encode(), hashlib.sha256)


async def of_terminals(
    connection: AsyncConnection, nodes: Collection[int]
) -> dict[int, Attachment]:
    """Return where terminals are; those that are not known are left out."""
    columns = (
        Terminal.node,
        Terminal.gateway,
        Terminal.heard_by,
        Terminal.former_gateway,
        Terminal.moved_ms,
    )
    rows = await connection.execute(select(*columns).where(Terminal.node.in_(nodes)))
    return {node: Attachment(*of_node) for node, *of_node in rows}


async def proved(
    connection: AsyncConnection, proofs: Iterable[Proof], now_ms: int
) -> dict[int, Proof]:
    """Return, by terminal, those of the proofs that are made with a token of the terminal.

    A token of a tenant that the terminal has been taken from proves nothing any more.
    """
    of_terminal = {proof.terminal: proof for proof in sorted(proofs, key=lambda one: one.time_ms)}
    if not of_terminal:
        return {}
    rows = await connection.execute(
        select(Token.node, Token.digest)
        .join(Terminal, Terminal.node == Token.node)
        .where(Token.role == Role.TERMINAL.value, Token.node.in_(of_terminal), is_in_force(now_ms))
        .where(or_(Token.tenant_id.is_(None), Token.tenant_id == Terminal.tenant_id))
        .order_by(Token.id.desc())
    )
    keys: dict[int, list[bytes]] = {}
    for node, digest in rows:
        assert node is not None
        keys.setdefault(node, []).append(digest)
    return {
        node: proof
        for node, proof in of_terminal.items()
        if any(_fits(proof, key) for key in keys.get(node, [])[:_MOST_TOKENS])
    }


def _fits(proof: Proof, digest: bytes) -> bool:
    made = mac_of(digest, proof.terminal, proof.gateway, proof.time_ms)
    return hmac.compare_digest(made, proof.mac)


async def learn(
    connection: AsyncConnection,
    gateway: int,
    *,
    proofs: Mapping[int, Proof],
    heard: Mapping[int, int],
    spoken_of: Collection[int],
) -> list[Row[tuple[object, ...]]]:
    """Note which terminals are at a gateway; return the rows of those for which that is new.

    Args:
        gateway: whose post it is.
        proofs: that terminals have moved to it, by terminal.
        heard: when terminals that spoke by it were first heard so.
        spoken_of: those of which the gateway itself has spoken.
    """
    found = []
    for node, proof in proofs.items():
        older = Terminal.moved_ms.is_(None) | (Terminal.moved_ms < proof.time_ms)
        values = {"former_gateway": Terminal.heard_by, "moved_ms": proof.time_ms}
        where = Terminal.gateway.is_(None) & older
        found += await _set(connection, [node], where, {"heard_by": gateway, **values})
    nobody = Terminal.heard_by.is_(None)
    # The post was sorted before: another gateway may have been the first one meanwhile.
    silent_here = (Terminal.heard_by == gateway) & Terminal.moved_ms.is_(None)
    for at_ms in sorted(set(heard.values())):
        nodes = [node for node, first_ms in heard.items() if first_ms == at_ms]
        values = {"heard_by": gateway, "moved_ms": at_ms}
        found += await _set(connection, nodes, nobody | silent_here, values)
    found += await _set(connection, spoken_of, nobody, {"heard_by": gateway})
    return found


async def assign(
    connection: AsyncConnection, nodes: Collection[int], gateway: int | None, now_ms: int
) -> None:
    """Note that an operator moves terminals, where naming this gateway does so."""
    serving = func.coalesce(literal(gateway, BigInteger), Terminal.heard_by)
    await connection.execute(
        update(Terminal)
        .where(Terminal.node.in_(nodes), SERVED_BY.is_distinct_from(serving))
        .values(former_gateway=SERVED_BY, moved_ms=now_ms)
    )


async def _set(
    connection: AsyncConnection,
    nodes: Collection[int],
    where: ColumnElement[bool],
    values: Mapping[str, object],
) -> list[Row[tuple[object, ...]]]:
    if not nodes:
        return []
    change = update(Terminal).where(Terminal.node.in_(nodes), where)
    rows = await connection.execute(
        change.values(**values, revision=Terminal.revision + 1).returning(Terminal.__table__)
    )
    return list(rows.all())
