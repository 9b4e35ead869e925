"""The connection to a node, and the endpoints that it has there."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

from underpass_client import frames
from underpass_client.errors import ConnectionLostError, refusal
from underpass_client.messages import Bundle, Event, Report, Sent

T = TypeVar("T")
# What the node answers: a head, and a payload that may be empty.
_Answer = asyncio.Future[tuple[dict[str, Any], bytes]]
# What is read of a file at once, bytes.
_PART_BYTES = 1 << 20


class Client:
    """A connection. The node gives an endpoint to one connection at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._answers: dict[int, _Answer] = {}
        # The node writes one payload to its disk at a time: it has begun to, or is asked to.
        self._begun: dict[int, asyncio.Event] = {}
        self._uploading = asyncio.Lock()
        self._endpoints: dict[int, Endpoint] = {}
        # What has come for an endpoint before its registration was answered.
        self._early: list[tuple[dict[str, Any], bytes]] = []
        self._lost: ConnectionLostError | None = None
        self._task: asyncio.Task[None] | None = None
        self.node = 0
        self.max_payload_bytes = 0
        self.max_file_bytes = 0

    @classmethod
    async def connect(cls, path: str | PathLike[str]) -> Self:
        """Connect to a node's socket of applications; raise `OSError` where none answers."""
        client = cls(*await asyncio.open_unix_connection(path))
        try:
            hello = await client._greeting()
        except BaseException:
            # Also where nobody waits for it any longer: a node has few connections.
            client._writer.close()
            raise
        client.node = hello["node"]
        client.max_payload_bytes = hello["max_payload_bytes"]
        client.max_file_bytes = hello.get("max_file_bytes", 0)
        client._task = asyncio.create_task(client._read())
        return client

    async def _greeting(self) -> dict[str, Any]:
        try:
            hello, _ = await frames.read(self._reader)
        except asyncio.IncompleteReadError as error:
            raise ConnectionLostError("the node ended the connection") from error
        if hello["type"] == "error":
            raise refusal(hello["code"], hello["message"])
        return hello

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; bundles that are not acknowledged wait for the next one."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def register(self, service: int | str | None = None) -> Endpoint:
        """Have the bundles for a service of the node, any that is free if none is named.

        A text is a service's name in the dtn scheme, such as "incoming". Raise `RefusedError` if
        another client has it, or no application may.

        A node takes no registration back. Of one that is cancelled the bundles may come and count
        among those that are not acknowledged: register the same service again, or close the client.
        """
        key = "name" if isinstance(service, str) else "service"
        answer = await self._ask({"type": "register", key: service})
        endpoint = Endpoint(self, answer["service"], answer["endpoint"])
        self._endpoints[endpoint.service] = endpoint
        early, self._early = self._early, []
        for head, payload in early:
            self._deliver(head, payload)
        if self._lost is not None:
            # It was just behind the answer.
            endpoint._end(self._lost)
        return endpoint

    async def _ask(self, head: dict[str, object], payload: bytes = b"") -> dict[str, Any]:
        answer, _ = await self._ask_for_payload(head, payload)
        return answer

    async def _ask_for_payload(
        self, head: dict[str, object], payload: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        with self._expect_answer() as (number, answer):
            await self._write({**head, "id": number}, payload)
            return await answer

    @contextlib.contextmanager
    def _expect_answer(self) -> Iterator[tuple[int, _Answer]]:
        number = next(self._ids)
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            yield number, answer
        finally:
            del self._answers[number]
            if not answer.cancel() and not answer.cancelled():
                # An error of the request itself is raised instead of a refusal.
                answer.exception()

    async def _upload(
        self, head: dict[str, object], length: int, parts: AsyncIterable[bytes]
    ) -> dict[str, Any]:
        async with self._uploading:
            with self._expect_answer() as (number, answer):
                begun = self._begun[number] = asyncio.Event()
                answer.add_done_callback(lambda _: begun.set())
                try:
                    await self._write({**head, "bytes": length, "id": number})
                    await begun.wait()
                finally:
                    del self._begun[number]
                if not answer.done():
                    await self._write_parts(number, answer, length, parts)
                sent, _ = await answer
                return sent

    async def _write_parts(
        self, number: int, answer: _Answer, length: int, parts: AsyncIterable[bytes]
    ) -> None:
        left = length
        async for part in parts:
            left -= len(part)
            if left < 0:
                raise ValueError(f"the parts are more than {length} bytes")
            await self._write_part(number, answer, part)
            if answer.done() and left > 0:
                # The node wants no more of it.
                return
        if left > 0:
            raise ValueError(f"the parts end {left} bytes before {length}")

    async def _write_part(self, number: int, answer: _Answer, part: bytes) -> None:
        at_once = max(self.max_payload_bytes, 1)
        for start in range(0, len(part), at_once):
            if not answer.done():
                head: dict[str, object] = {"type": "part", "id": number}
                await self._write(head, part[start : start + at_once])

    async def _write(self, head: dict[str, object], payload: bytes = b"") -> None:
        if self._lost is not None:
            raise self._lost
        self._writer.write(frames.encode(head, payload))
        await self._writer.drain()

    async def _read(self) -> None:
        lost = "the node ended the connection"
        try:
            while True:
                head, payload = await frames.read(self._reader)
                if head["type"] == "error" and head["id"] is None:
                    lost = head["message"]
                    break
                self._take(head, payload)
        except (asyncio.IncompleteReadError, OSError) as error:
            lost = f"{lost} ({error})"
        finally:
            self._lost = ConnectionLostError(lost)
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(self._lost)
            for endpoint in self._endpoints.values():
                endpoint._end(self._lost)

    def _take(self, head: dict[str, Any], payload: bytes) -> None:
        if head["type"] == "begun":
            begun = self._begun.get(head["id"])
            if begun is not None:
                begun.set()
            return
        if head["type"] not in ("registered", "sent", "data", "error"):
            self._deliver(head, payload)
            return
        answer = self._answers.get(head["id"])
        if answer is None or answer.done():
            return
        if head["type"] == "error":
            answer.set_exception(refusal(head["code"], head["message"]))
        else:
            answer.set_result((head, payload))

    def _deliver(self, head: dict[str, Any], payload: bytes) -> None:
        endpoint = self._endpoints.get(head["service"])
        if endpoint is None:
            # No more than the node gives before the first is acknowledged.
            self._early.append((head, payload))
        else:
            endpoint._take(head, payload)


class Endpoint:
    """An endpoint of the node, `name`: what is sent from it, and what comes for it.

    Iterating over it gives each bundle as it comes. The node gives no more than a few before the
    first of them is acknowledged.
    """

    def __init__(self, client: Client, service: int, name: str) -> None:
        self._client = client
        self.service = service
        self.name = name
        self._bundles: asyncio.Queue[Bundle | ConnectionLostError] = asyncio.Queue()
        self._reports: asyncio.Queue[Report | ConnectionLostError] = asyncio.Queue()

    async def send(
        self,
        destination: str,
        payload: bytes,
        *,
        lifetime_s: float | None = None,
        custody: bool = True,
        reports: Collection[Event] = (),
    ) -> Sent:
        """Send a bundle; return once the node has taken it.

        Raise `NoRoomError` while the node has no room, `RefusedError` if it cannot be sent.
        `reports` come to `report`. A long payload goes by way of the node's disk, as with
        `send_parts`.
        """
        if len(payload) > self._client.max_payload_bytes:
            return await self.send_parts(
                destination,
                len(payload),
                _once(payload),
                lifetime_s=lifetime_s,
                custody=custody,
                reports=reports,
            )
        head = self._head("send", destination, lifetime_s, custody, reports)
        return _sent(await self._client._ask(head, payload))

    async def send_parts(
        self,
        destination: str,
        length: int,
        parts: AsyncIterable[bytes],
        *,
        lifetime_s: float | None = None,
        custody: bool = True,
        reports: Collection[Event] = (),
    ) -> Sent:
        """Send a bundle whose payload comes in parts of `length` bytes in all.

        The node writes it to its disk, and sends the bundle when it is whole. A connection gives
        one such payload at a time; others wait. Raises as `send`, and `ValueError` if the parts
        are of another length: nothing is sent then.
        """
        head = self._head("begin", destination, lifetime_s, custody, reports)
        return _sent(await self._client._upload(head, length, parts))

    async def send_file(
        self,
        destination: str,
        path: str | PathLike[str],
        *,
        lifetime_s: float | None = None,
        custody: bool = True,
        reports: Collection[Event] = (),
    ) -> Sent:
        """Send a file as one bundle, as `send_parts` does, whatever its length."""
        with await asyncio.to_thread(lambda: Path(path).open("rb")) as file:
            length = os.fstat(file.fileno()).st_size

            async def parts() -> AsyncIterator[bytes]:
                left = length
                while part := await asyncio.to_thread(file.read, min(left, _PART_BYTES)):
                    left -= len(part)
                    yield part

            return await self.send_parts(
                destination,
                length,
                parts(),
                lifetime_s=lifetime_s,
                custody=custody,
                reports=reports,
            )

    def _head(
        self,
        kind: str,
        destination: str,
        lifetime_s: float | None,
        custody: bool,
        reports: Collection[Event],
    ) -> dict[str, object]:
        return {
            "type": kind,
            "service": self.service,
            "destination": destination,
            "lifetime_ms": None if lifetime_s is None else round(lifetime_s * 1000),
            "custody": custody,
            "reports": list(reports),
        }

    async def receive(self) -> Bundle:
        """Return the next bundle; raise `ConnectionLostError` once the connection has ended."""
        return _or_raise(await self._bundles.get(), self._bundles)

    async def report(self) -> Report:
        """Return the next status report on a bundle of this endpoint."""
        return _or_raise(await self._reports.get(), self._reports)

    async def __aiter__(self) -> AsyncIterator[Bundle]:
        while True:
            yield await self.receive()

    async def _read(self, delivery: int, offset: int) -> bytes:
        head: dict[str, object] = {"type": "read", "delivery": delivery, "offset": offset}
        _, part = await self._client._ask_for_payload(head)
        return part

    async def _acknowledge(self, delivery: int) -> None:
        await self._client._write({"type": "acknowledge", "delivery": delivery})

    def _take(self, head: dict[str, Any], payload: bytes) -> None:
        if head["type"] == "bundle":
            acknowledge = functools.partial(self._acknowledge, head["delivery"])
            bundle = Bundle(
                head["source"],
                head["time_ms"],
                head["sequence"],
                head["age_ms"],
                payload,
                head.get("file_bytes"),
                functools.partial(self._read, head["delivery"]),
                acknowledge,
            )
            self._bundles.put_nowait(bundle)
        else:
            report = Report(
                head["reporter"],
                head["time_ms"],
                head["sequence"],
                tuple(head["events"]),
                head["at_ms"],
                head["reason"],
            )
            self._reports.put_nowait(report)

    def _end(self, lost: ConnectionLostError) -> None:
        self._bundles.put_nowait(lost)
        self._reports.put_nowait(lost)


def _sent(answer: dict[str, Any]) -> Sent:
    return Sent(answer["source"], answer["time_ms"], answer["sequence"])


async def _once(payload: bytes) -> AsyncIterator[bytes]:
    yield payload


def _or_raise(item: T | ConnectionLostError, queue: asyncio.Queue[T | ConnectionLostError]) -> T:
    if isinstance(item, ConnectionLostError):
        # Whoever asks next is told, too.
        queue.put_nowait(item)
        raise item
    return item
