"""Whatever the OpenAPI document allows, or not quite, is answered as the document says."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.control_api.service.api import Api

# Bounds the time: some 60 operations, each on two databases and in two modes.
_CASES_PER_OPERATION = 12
# A stream has no end to wait for.
_STREAMS = ("/v1/events", "/v1/gateways/{gateway}/plans")
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_requests_made_from_the_document_are_answered_as_it_says(
    api: Api, mode: GenerationMode
) -> None:
    document = api.get("/openapi.json", caller=None).json
    # The cases are sent from a thread, and the service answers them here.
    api.run(asyncio.to_thread(_send_all, api, document, mode))


@schemathesis.serializer("application/geo+json-seq", "application/json-seq")
def _sequence(_context: Any, value: object) -> bytes:
    """A map of one feature (RFC 8142), or of one tile (RFC 7464)."""
    return f"\x1e{json.dumps(value)}\n".encode()


def _send_all(api: Api, document: dict[str, Any], mode: GenerationMode) -> None:
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        if operation.path not in _STREAMS:
            # There is no wrong way to ask an operation that takes nothing.
            with suppress(Unsatisfiable):
                _send(api, operation, mode)


def _send(api: Api, operation: Any, mode: GenerationMode) -> None:
    @settings(
        max_examples=_CASES_PER_OPERATION,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        base = str(api.client.make_url("")).rstrip("/")
        case.call_and_validate(base_url=base, headers=api.headers("administrator"), checks=_CHECKS)

    run()
