"""Flows that run side by side for a time, each by its own way."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tests.benchmarks.subjects import Access
from tests.testbed.client.transfer import Transfer, download

_ENDLESS = 1_000_000_000_000


class FlowError(RuntimeError):
    """A flow ended before its time, so its goodput says nothing; the text has its error."""


def run_flows(accesses: Sequence[Access], seconds: float, seed: int) -> list[Transfer]:
    """Download by all ways at once for a time; return what each has got.

    A flow that ends before, or has got nothing, is an error of the test bed or the subject,
    and raises `FlowError`.
    """
    transfers: list[Transfer | None] = [None] * len(accesses)

    def flow(place: int, access: Access) -> None:
        transfers[place] = download(
            access.client,
            access.host,
            _ENDLESS,
            port=access.port,
            route=access.route,
            seed=seed + place,
            deadline_s=seconds,
        )

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
        if not transfer.bytes or not (transfer.error or "").startswith("TimeoutError"):
            raise FlowError(f"flow {place} got {transfer.bytes} bytes: {transfer.error}")
    return done


def steady_bps(transfer: Transfer, seconds: float) -> float:
    """Return the goodput after the first fifth of the time, which is start-up."""
    begin = seconds / 5
    return (transfer.bytes - transfer.bytes_at(begin)) * 8 / (seconds - begin)
