"""A return link allocated by an NCC, from the operator's setting to the NCC's own figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.control_api.opensand import ncc as peer
from tests.control_api.service.api import FIRST, SECOND, Api
from tests.control_api.service.test_events import following

BEAM = {
    "name": "Ku 1",
    "forward_capacity_bps": 8_000_000,
    "return_capacity_bps": 2_000_000,
    "one_way_delay_ms": 100,
}


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


async def set_terminals(api: Api, **first: Any) -> None:
    for node, st_id in ((FIRST, 3), (SECOND, 7)):
        body = {"beam": "ku-1", "name": f"vehicle {node}", "opensand_id": st_id}
        reply = await api.ask("PUT", f"/v1/terminals/{node}", body | (first if st_id == 3 else {}))
        assert reply.status == 200, reply.text


async def test_the_ncc_shares_out_the_return_link_as_planned(api: Api) -> None:
    ncc = peer.Ncc({3: peer.Terminal(), 7: peer.Terminal()})

    def rates() -> tuple[int, int]:
        return ncc.terminals[3].cra_kbps, ncc.terminals[7].cra_kbps

    await ncc.start()
    async with following(api, "kinds=opensand", caller="operator") as events:
        await set_terminals(api)
        url = f"opensand://127.0.0.1:{ncc.port}"
        assert (await api.ask("PUT", "/v1/beams/ku-1", BEAM | {"opensand": url})).status == 200
        await until(lambda: rates() == (1000, 1000))
        # A third of the capacity has no whole number of kbit/s, and the sum must not exceed it.
        await set_terminals(api, weight=2)
        await until(lambda: rates() == (1333, 666))
        connected = await events.next()
        assert connected[1] == {"beam": "ku-1", "connected": True}
        while (told := await events.next())[1].get("rounding_bps", 0) == 0:
            pass
        assert -2_000 < told[1]["rounding_bps"] < 0
    metrics = (await api.ask("GET", "/metrics")).text
    assert 'underpass_control_opensand_connected{beam="ku-1"} 1.0' in metrics
    # Without the setting it is disconnected, and keeps the last rates.
    assert (await api.ask("PUT", "/v1/beams/ku-1", BEAM)).status == 200
    await until(lambda: not ncc.is_busy)
    await ncc.stop()
    assert ncc.broken == []
    assert ncc.connections == 1


def test_what_cannot_be_an_ncc_or_its_terminal_is_refused(api: Api) -> None:
    for url in ("http://ncc", "opensand://", "opensand://ncc:99999", "opensand://ncc/x"):
        assert api.call("PUT", "/v1/beams/ku-1", BEAM | {"opensand": url}).status == 422
    body = {"beam": "ku-1", "name": "x"}
    for st_id in (-1, 65_536, "3"):
        reply = api.call("PUT", f"/v1/terminals/{FIRST}", body | {"opensand_id": st_id})
        assert reply.status == 422
    assert api.call("PUT", f"/v1/terminals/{FIRST}", body | {"opensand_id": 3}).status == 200
    for node in (SECOND, 99):
        taken = api.call("PUT", f"/v1/terminals/{node}", body | {"opensand_id": 3})
        assert taken.status == 409
        assert "another of its terminals has opensand_id 3" in taken.problem
