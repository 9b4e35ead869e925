"""One HTTP request of a client, small enough for memory."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass

from tests.testbed.client.route import DIRECT
from tests.testbed.namespace import Namespace


@dataclass(frozen=True)
class Answer:
    """Names of fields are in lower case."""

    status: int
    fields: Mapping[str, str]
    body: bytes


def exchange(
    namespace: Namespace,
    server: tuple[str, int],
    method: str,
    target: str,
    *,
    fields: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout_s: float = 10.0,
) -> Answer:
    """Send a request to a server or proxy, return its answer; raise `OSError` if none comes."""
    connection = http.client.HTTPConnection(*server, timeout=timeout_s)
    connection.sock = DIRECT.connect(namespace, *server, timeout_s=timeout_s)
    try:
        connection.request(method, target, body, dict(fields or {}))
        answer = connection.getresponse()
        content = answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"{method} {target}: {error!r}") from error
    finally:
        connection.close()
    return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, content)
