"""The API's models of functions and slices."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from underpass_control.functions.kinds import FunctionName
from underpass_control.functions.slices import (
    MOST_FUNCTIONS,
    MOST_REPLICAS,
    MOST_SLICES,
    Attached,
    NetworkBody,
    SliceName,
)
from underpass_control.http.models import Instant, Model, TenantId

_MOST_CONTAINERS = MOST_FUNCTIONS * MOST_REPLICAS


class Function(Model):
    """A kind of function, as its descriptor has it."""

    name: str
    summary: str
    image: str
    needs: list[str]
    forwards: bool
    capabilities: list[str]
    cpus: float
    memory_mb: int
    ports: list[dict[str, Any]]
    most_replicas: int
    # JSON Schema.
    settings: dict[str, Any]


class FunctionList(Model):
    """All kinds of functions."""

    functions: list[Function]


class FunctionOfSlice(Model):
    """A function as it is set. Replicas and healing have operations of their own, too."""

    name: FunctionName
    function: FunctionName
    # The inner network first: a forwarder is the way out of it.
    networks: Annotated[list[Attached], Field(min_length=1, max_length=4)]
    settings: dict[str, Any]
    replicas: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] = 1


class SlicePut(Model):
    """A slice as it is set. Without a tenant: the caller's, or the default one."""

    tenant: TenantId | None = None
    site: SliceName = "default"
    networks: Annotated[list[NetworkBody], Field(min_length=1, max_length=7)]
    functions: Annotated[list[FunctionOfSlice], Field(min_length=1, max_length=MOST_FUNCTIONS)]


class ReplicasBody(Model):
    """How many containers of a function run side by side."""

    replicas: Annotated[int, Field(ge=1, le=MOST_REPLICAS)]


class ContainerState(Model):
    """What a site says of a container."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}\.[1-9]$")]
    state: Annotated[str, Field(pattern=r"^[a-z]{1,16}$")]
    health: Literal["healthy", "unhealthy", "starting", "none"]


class FunctionShown(FunctionOfSlice):
    """A function of a slice."""

    # Rises each time the function is healed.
    generation: int


class SliceShown(Model):
    """A slice: as it is to be, and what its site says of it.

    `waiting`: the site has not said anything of this revision; `running`: all containers are
    healthy; `degraded`: some are not; `failed`: it cannot be run, `detail` says why; `ending`: it
    is being terminated.
    """

    name: SliceName
    tenant: TenantId
    site: SliceName
    number: int
    revision: int
    set: Instant
    networks: list[NetworkBody]
    functions: list[FunctionShown]
    state: Literal["waiting", "running", "degraded", "failed", "ending"]
    reported: Instant | None = None
    detail: str | None = None
    containers: list[ContainerState]


class SliceList(Model):
    """A page of slices."""

    slices: list[SliceShown]
    next: str | None = None


class DesiredSlice(Model):
    """A slice as its site's agent is to run it, or to end it."""

    name: str
    tenant: str
    number: int
    revision: int
    ending: bool
    body: dict[str, Any]


class DesiredSlices(Model):
    """All slices of a site."""

    slices: list[DesiredSlice]


class SliceReport(Model):
    """What a site says of a slice."""

    name: SliceName
    revision: Annotated[int, Field(ge=1, lt=2**63)]
    # `ended`: nothing of it is left.
    state: Literal["running", "failed", "ended"]
    detail: Annotated[str, Field(max_length=1000, pattern=r"^[^\x00]*$")] | None = None
    containers: Annotated[
        list[ContainerState], Field(default_factory=list, max_length=_MOST_CONTAINERS)
    ]


class SliceReports(Model):
    """What a site says of its slices."""

    slices: Annotated[list[SliceReport], Field(max_length=MOST_SLICES)]
