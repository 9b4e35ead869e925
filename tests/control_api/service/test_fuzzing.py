"""Requests that the OpenAPI document allows, or almost does, get the answers it declares."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.control_api import postgresql
from tests.control_api.service.api import Api, served
from tests.control_api.service.conftest import migrated

# Limits the time for some 110 operations, each in two modes.
_CASES_PER_OPERATION = 12
# A stream has no end to wait for.
_STREAMS = ("/v1/events", "/v1/gateways/{gateway}/plans")
_CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
def apis(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Api]]:
    """The service over each kind of database that is available here."""
    with served(migrated(request, "sqlite", tmp_path)) as api:
        apis = [api]
        if postgresql.missing() is None:
            apis.append(api.replica(migrated(request, "postgresql", tmp_path)))
            api.run(apis[1].start())
        for each in apis:
            each.add_beam()
        yield apis
        for each in apis[1:]:
            api.run(each.client.close())


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_requests_made_from_the_document_are_answered_as_it_says(
    apis: list[Api], mode: GenerationMode
) -> None:
    document = apis[0].get("/openapi.json", caller=None).json
    # The cases are sent from a thread, and the services answer them here.
    apis[0].run(asyncio.to_thread(_send_all, apis, document, mode))
    if len(apis) == 1:
        pytest.skip(f"passed, on SQLite alone: {postgresql.missing()}")


@schemathesis.serializer("application/geo+json-seq", "application/json-seq")
def _sequence(_context: Any, value: object) -> bytes:
    """A map of one feature (RFC 8142), or of one tile (RFC 7464)."""
    return f"\x1e{json.dumps(value)}\n".encode()


def _send_all(apis: list[Api], document: dict[str, Any], mode: GenerationMode) -> None:
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        if operation.path not in _STREAMS:
            # An operation without parameters has no invalid requests.
            with suppress(Unsatisfiable):
                _send(apis, operation, mode)


def _send(apis: list[Api], operation: Any, mode: GenerationMode) -> None:
    @settings(
        max_examples=_CASES_PER_OPERATION,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        # Making a case takes most of the time: each goes to all services.
        for api in apis:
            note(f"asked over {api.database.url.get_backend_name()}")
            base = str(api.client.make_url("")).rstrip("/")
            headers = api.headers("administrator")
            case.call_and_validate(base_url=base, headers=headers, checks=_CHECKS)

    run()
