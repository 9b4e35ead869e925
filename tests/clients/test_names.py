"""Services that have a name of the dtn scheme."""

from __future__ import annotations

import asyncio
from pathlib import Path

from underpass_client import Client

from tests.clients.node import Node, serve

# As the node numbers it: exact in a double.
_SERVICE = 2**52 + 12345


def test_a_service_is_registered_by_its_name(tmp_path: Path) -> None:
    async def behave(node: Node) -> None:
        asked, _ = await node.hear()
        assert asked == {"type": "register", "name": "incoming", "id": 2}
        endpoint = "dtn://edge-7/incoming"
        await node.tell(type="registered", id=2, service=_SERVICE, endpoint=endpoint)
        sent, _ = await node.hear()
        assert (sent["service"], sent["destination"]) == (_SERVICE, "dtn://rover/in")
        await node.sent(sent["id"])

    async def use(client: Client) -> None:
        await client.register(40)
        endpoint = await client.register("incoming")
        assert (endpoint.service, endpoint.name) == (_SERVICE, "dtn://edge-7/incoming")
        await endpoint.send("dtn://rover/in", b"hello")

    asyncio.run(serve(tmp_path, behave, use))
