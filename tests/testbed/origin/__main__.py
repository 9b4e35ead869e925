"""Run all origins of the test bed in the current namespace until the end of the process."""

from __future__ import annotations

import asyncio

from tests.testbed import addresses, ports
from tests.testbed.origin.dns import Dns
from tests.testbed.origin.http import HttpOrigin
from tests.testbed.origin.tcp import Echo, Resetting, Stalled


async def main() -> None:
    """Listen on every port of `ports`."""
    loop = asyncio.get_running_loop()
    http = HttpOrigin()
    await http.serve(ports.HTTP)
    await http.serve(ports.HTTP_PROXY_PROTOCOL, proxy_protocol=True)
    await loop.create_datagram_endpoint(Dns, (addresses.ORIGIN, ports.DNS))
    for protocol, port in (
        (Echo, ports.ECHO),
        (Stalled, ports.STALLED),
        (Resetting, ports.RESETTING),
    ):
        await loop.create_server(protocol, ["0.0.0.0", "::"], port, backlog=4096)  # noqa: S104
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
