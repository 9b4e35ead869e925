"""Flows that run side by side for a time, each by its own way."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tests.benchmarks.subjects import Access
from tests.testbed.client.transfer import Transfer, download

_ENDLESS = 1_000_000_000_000


def run_flows(accesses: Sequence[Access], seconds: float, seed: int) -> list[Transfer]:
    """Download by all ways at once for a time; return what each has got."""
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
    return [transfer for transfer in transfers if transfer is not None]


def steady_bps(transfer: Transfer, seconds: float) -> float:
    """Return the goodput after the first fifth of the time, which is start-up."""
    begin = seconds / 5
    return (transfer.bytes - transfer.bytes_at(begin)) * 8 / (seconds - begin)
