"""Bundles for applications: a client of the socket that `[applications]` opens at a node.

    async with await Client.connect("/run/underpass/applications.sock") as client:
        endpoint = await client.register(40)
        await endpoint.send("ipn:1.40", b"hello")
        async for bundle in endpoint:
            print(bundle.source, bundle.payload)
            await bundle.acknowledge()

The protocol is specified in docs/applications.md. Needs nothing but Python 3.11 or later.
"""

from underpass_client.client import Client, Endpoint
from underpass_client.errors import ConnectionLostError, NoRoomError, RefusedError
from underpass_client.messages import Bundle, Event, Report, Sent
from underpass_client.ping import ping

__all__ = [
    "Bundle",
    "Client",
    "ConnectionLostError",
    "Endpoint",
    "Event",
    "NoRoomError",
    "RefusedError",
    "Report",
    "Sent",
    "ping",
]
