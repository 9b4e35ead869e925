"""The transfers of one run, and their outcome at the applications of both ends."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.benchmarks.kills.claims import Answered, Course, Deferred
from tests.testbed import addresses, ports
from tests.testbed.client.exchange import exchange
from tests.testbed.client.route import Route
from tests.testbed.client.transfer import Transfer, download, request, upload
from tests.testbed.content import ContentError, Verifier, pieces
from tests.testbed.node import HTTP_PORT, Pair
from tests.testbed.origin.receipts import Ending, Receipt
from tests.testbed.topology import Testbed

_SMALLEST, _LARGEST = 100_000, 8_000_000
_REQUEST_BYTES, _RESPONSE_BYTES = 100_000, 300_000
_SEEDS_PER_RUN = 5
_POLL_S = 0.1


@dataclass
class _Stream:
    """A download or upload."""

    what: str
    seed: int
    size: int
    done: Future[Transfer]

    def client_end(self) -> tuple[int, Ending, str | None]:
        """Return the bytes at its client, how it ended there, and any error."""
        try:
            transfer = self.done.result()
        except AssertionError as error:
            return 0, "reset", str(error)
        if transfer.complete:
            return transfer.bytes, "whole", None
        reason = transfer.error or ""
        if reason.startswith("TimeoutError"):
            return transfer.bytes, "open", None
        fin = reason.startswith("ConnectionError: ended")
        return transfer.bytes, "end" if fin else "reset", None


@dataclass
class _Kept:
    accepted: bool = False
    refused_with: int | None = None
    state: str | None = None
    response_error: str | None = None


@dataclass
class Load:
    """Two downloads, two uploads and a deferred request, running."""

    pair: Pair[Testbed]
    number: int
    # The deferred request is sent so long after the beginning.
    deferred_after_s: float
    deadline_s: float
    downloads: list[_Stream] = field(default_factory=list)
    uploads: list[_Stream] = field(default_factory=list)

    def begin(self, pool: ThreadPoolExecutor, random_: random.Random) -> None:
        """Start all transfers, with random sizes."""
        # No seed is used twice: content of earlier runs may still be in a node's files.
        first = 1000 + self.number * _SEEDS_PER_RUN
        for place, (way, route) in enumerate(
            (("SOCKS", self.pair.socks5()), ("HTTP", self.pair.http_forward()))
        ):
            for streams, one, what, seed in (
                (self.downloads, self._download, "download", first + place),
                (self.uploads, self._upload, "upload", first + 2 + place),
            ):
                size = random_.randrange(_SMALLEST, _LARGEST)
                done = pool.submit(one, route, size, seed)
                streams.append(_Stream(f"{what} by {way}", seed, size, done))
        self._deferred_seed = first + 4
        self._repeatable = random_.random() < 0.5
        self._deferred = pool.submit(self._defer)

    def courses(self, in_custody: dict[int, int]) -> Iterator[Course]:
        """Yield what the receiving applications got; `in_custody` is by seed."""
        for stream in self.downloads:
            received, ending, wrong = stream.client_end()
            kept = in_custody.get(stream.seed, 0)
            yield Course(stream.what, stream.size, received, ending, wrong, kept)
        for stream in self.uploads:
            kept = in_custody.get(stream.seed, 0)
            # An upload that never came to the origin counts as ended there.
            for receipt in self._receipts(stream.seed) or [Receipt(stream.size, ending="reset")]:
                yield Course(
                    f"{stream.what}, at the origin",
                    stream.size,
                    receipt.bytes,
                    receipt.ending,
                    receipt.wrong,
                    kept,
                )

    def answers(self) -> Iterator[Answered]:
        """Yield the answers that the uploads' clients got."""
        for stream in self.uploads:
            _, ending, wrong = stream.client_end()
            receipts = self._receipts(stream.seed)
            whole = ending == "whole" or wrong is not None
            yield Answered(stream.what, whole, ending != "open", receipts)

    def deferred(self, killed: str) -> Deferred:
        """Return the outcome of the deferred request."""
        kept = self._deferred.result()
        return Deferred(
            repeatable=self._repeatable,
            accepted=kept.accepted,
            refused_with=kept.refused_with,
            state=kept.state,
            response_error=kept.response_error,
            receipts=self._receipts(self._deferred_seed),
            killed=killed,
        )

    def origin_is_done(self) -> bool:
        """Tell whether all uploads have ended at the origin."""
        return all(
            receipt.ending != "open"
            for stream in self.uploads
            for receipt in self._receipts(stream.seed)
        )

    def _receipts(self, seed: int) -> list[Receipt]:
        _, body = request(self.pair.testbed.hub, addresses.ORIGIN, f"/receipts/{seed}")
        return [Receipt(**document) for document in json.loads(body)]

    def _download(self, route: Route, size: int, seed: int) -> Transfer:
        return download(
            self.pair.client,
            addresses.ORIGIN,
            size,
            route=route,
            seed=seed,
            deadline_s=self.deadline_s,
        )

    def _upload(self, route: Route, size: int, seed: int) -> Transfer:
        return upload(
            self.pair.client,
            addresses.ORIGIN,
            size,
            route=route,
            seed=seed,
            deadline_s=self.deadline_s,
            query=f"&name={seed}",
        )

    def _defer(self) -> _Kept:
        time.sleep(self.deferred_after_s)
        until = time.monotonic() + self.deadline_s
        kept, proxy = _Kept(), (addresses.terminal_lan(0), HTTP_PORT)
        seed = self._deferred_seed
        fields = {"Prefer": "respond-async"}
        if self._repeatable:
            fields["Idempotency-Key"] = f'"{seed}"'
        origin = f"http://{addresses.ORIGIN}:{ports.HTTP}"
        target = f"{origin}/bytes/{_RESPONSE_BYTES}?seed={seed}&name={seed}"
        body = b"".join(pieces(seed, _REQUEST_BYTES))
        try:
            answer = exchange(self.pair.client, proxy, "POST", target, fields=fields, body=body)
        except OSError:
            return kept
        if answer.status != 202:
            kept.refused_with = answer.status
            return kept
        kept.accepted = True
        url = answer.fields["location"]
        kept.state = self._state(proxy, url, until)
        if kept.state == "answered":
            response = exchange(self.pair.client, proxy, "GET", f"{url}/response")
            kept.response_error = _difference(response.body, seed)
            exchange(self.pair.client, proxy, "DELETE", url)
        return kept

    def _state(self, proxy: tuple[str, int], url: str, until: float) -> str | None:
        """Ask until the request has ended or time is over; the node may be down meanwhile."""
        state = None
        while time.monotonic() < until:
            try:
                answer = exchange(self.pair.client, proxy, "GET", url, timeout_s=2.0)
            except OSError:
                time.sleep(_POLL_S)
                continue
            if answer.status != 200:
                return f"gone ({answer.status})"
            state = str(json.loads(answer.body)["state"])
            if state not in ("stored", "forwarded", "sent"):
                return state
            time.sleep(_POLL_S)
        return state


def _difference(body: bytes, seed: int) -> str | None:
    try:
        Verifier(seed).feed(body)
    except ContentError as error:
        return str(error)
    if len(body) != _RESPONSE_BYTES:
        return f"{len(body)} of {_RESPONSE_BYTES} bytes"
    return None
