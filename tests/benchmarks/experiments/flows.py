"""Flows that run in parallel for a time, each by its own way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence

from tests.benchmarks.bench import say
from tests.benchmarks.subjects import Access
from tests.testbed import ports
from tests.testbed.client.transfer import Transfer, request
from tests.testbed.namespace import Namespace

_ENDLESS = 1_000_000_000_000
_SAMPLE_S = 0.25
# The most until a client notices the origin's reset, through a queue and a blockage.
_BROKEN_WITHIN_S = 10.0


class FlowError(RuntimeError):
    """A flow ended early, so its goodput means nothing; the text has its error."""


def run_flows(accesses: Sequence[Access], seconds: float, seed: int) -> list[Transfer]:
    """Download by all ways at once for a time; return the transfers.

    A flow that ends early shows an error of the test bed or the subject, and raises `FlowError`.
    One that receives nothing in its time is a result.
    """
    transfers: list[Transfer | None] = [None] * len(accesses)

    def flow(place: int, access: Access) -> None:
        transfers[place] = access.download(_ENDLESS, seed + place, seconds)

    threads = [
        threading.Thread(target=flow, args=pair, name=f"flow-{pair[0]}")
        for pair in enumerate(accesses)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = [transfer for transfer in transfers if transfer is not None]
    for place, transfer in enumerate(done):
        if not (transfer.error or "").startswith("TimeoutError"):
            raise FlowError(f"flow {place} got {transfer.bytes} bytes: {transfer.error}")
        if not transfer.bytes:
            say(f"flow {place} got nothing in {seconds:.0f} s: {transfer.error}")
    return done


def steady_bps(transfer: Transfer, seconds: float) -> float:
    """Return the goodput after the first fifth of the time, which counts as start-up."""
    begin = seconds / 5
    return (transfer.bytes - transfer.bytes_at(begin)) * 8 / (seconds - begin)


def run_uploads(
    accesses: Sequence[Access], origin: Namespace, seconds: float, seed: int
) -> list[Transfer]:
    """Upload by all ways at once for a time; return what the origin received of each, and when.

    The bytes that a client hands in mean little: proxies take them long before they are sent. The
    origin ends the uploads: after a client's reset, a proxy may still deliver all that it has
    taken. Errors are those of `run_flows`.
    """
    names = [f"flow-{time.monotonic_ns()}-{place}" for place in range(len(accesses))]
    sent: list[Transfer | None] = [None] * len(accesses)

    def flow(place: int, access: Access) -> None:
        deadline_s = seconds + _BROKEN_WITHIN_S
        query = f"&name={names[place]}"
        sent[place] = access.upload(_ENDLESS, seed + place, deadline_s, query=query)

    threads = [
        threading.Thread(target=flow, args=pair, name=f"flow-{pair[0]}")
        for pair in enumerate(accesses)
    ]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    arrived = [Transfer(_ENDLESS) for _ in names]
    while time.monotonic() - begin < seconds + _SAMPLE_S:
        time.sleep(_SAMPLE_S)
        for name, transfer in zip(names, arrived, strict=True):
            status, body = request(origin, "127.0.0.1", f"/receipts/{name}", port=ports.HTTP)
            for receipt in json.loads(body) if status == 200 else []:
                if receipt["wrong"]:
                    raise FlowError(f"{name}: {receipt['wrong']}")
                transfer.bytes = receipt["bytes"]
                transfer.curve.append((time.monotonic() - begin, transfer.bytes))
    early = [end.error for end in sent if end is not None]
    for name in names:
        request(origin, "127.0.0.1", f"/break/{name}", port=ports.HTTP)
    for thread in threads:
        thread.join()
    if early:
        raise FlowError(f"uploads ended before their time: {early}")
    for place, transfer in enumerate(arrived):
        if not transfer.bytes:
            say(f"flow {place} brought nothing in {seconds:.0f} s: {sent[place]}")
    return arrived
