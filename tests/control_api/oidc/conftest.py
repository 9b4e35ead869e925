"""Databases, as for the other tests of the service."""

from tests.control_api.service.conftest import (  # noqa: F401 - fixtures
    migrated_postgres,
    migrated_sqlite,
    postgres,
    url,
)
