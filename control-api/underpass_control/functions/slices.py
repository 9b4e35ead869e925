"""Slices: chains of functions on networks of their own, checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from underpass_control.functions.descriptors import Descriptor, settings_model
from underpass_control.functions.kinds import NAME, Address, FunctionName
from underpass_control.validation import ID, first_fault, worded

MOST_FUNCTIONS = 16
MOST_NETWORKS = 7
MOST_REPLICAS = 8
# The size limit of one function's settings, as JSON.
MOST_SETTINGS_BYTES = 8_192
# Slices of one tenant, and of all: each has a /24 of the pool.
MOST_OF_TENANT = 16
MOST_SLICES = 256

SliceName = Annotated[str, Field(pattern=NAME)]
NetworkName = Annotated[
    str,
    Field(
        pattern=worded(
            r"^[a-z]([a-z0-9-]{0,13}[a-z0-9])?$",
            "have 1 to 15 of a-z, 0-9 and -, begin with one of a-z, and not end with -",
        )
    ),
]


class SliceError(ValueError):
    """A slice cannot be as described; the text says why, to the user who has set it."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NetworkBody(_Strict):
    """A network of a slice: its own, or a place where the host's operator lets it attach."""

    name: NetworkName
    attachment: NetworkName | None = None


class Attached(_Strict):
    """That a function is on a network; on an attachment, perhaps with an address there."""

    network: NetworkName
    address: Address | None = None


class FunctionBody(_Strict):
    """A function of a slice.

    Attributes:
        function: the name of its descriptor.
        networks: the inner one first: a forwarder is the way out of that one.
        generation: rises each time that it is to be made anew (healed).
    """

    name: FunctionName
    function: FunctionName
    networks: Annotated[list[Attached], Field(min_length=1, max_length=4)]
    settings: dict[str, Any]
    replicas: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] = 1
    generation: Annotated[int, Field(ge=1, le=2**31)] = 1


class SliceBody(_Strict):
    """A chain of functions with its networks, and the site that it runs at."""

    site: SliceName = "default"
    networks: Annotated[list[NetworkBody], Field(min_length=1, max_length=MOST_NETWORKS)]
    functions: Annotated[list[FunctionBody], Field(min_length=1, max_length=MOST_FUNCTIONS)]


class Desired(_Strict):
    """A slice as it is to run: what its tenant has set, and what the service has given it.

    Attributes:
        number: of its block of addresses, 0 to 255; no other slice has it.
        revision: rises with each change.
    """

    name: SliceName
    tenant: Annotated[str, Field(pattern=ID)]
    number: Annotated[int, Field(ge=0, lt=MOST_SLICES)]
    revision: Annotated[int, Field(ge=1)]
    body: SliceBody


def checked(body: SliceBody, catalogue: Mapping[str, Descriptor]) -> SliceBody:
    """Return a slice with all defaults of its functions' settings filled in.

    Raises:
        SliceError: A part of it is impossible.
    """
    networks = {one.name: one for one in body.networks}
    functions = {one.name: one for one in body.functions}
    if len(networks) < len(body.networks) or len(functions) < len(body.functions):
        raise SliceError("a name is there twice")
    kinds = {one.function for one in body.functions}
    nodes: set[int] = set()
    inner: set[str] = set()
    done = []
    for one in body.functions:
        descriptor = catalogue.get(one.function)
        if descriptor is None:
            raise SliceError(f"{one.name}: nothing describes a function {one.function}")
        for needed in descriptor.needs:
            if needed not in kinds:
                raise SliceError(f"{one.name}: a {one.function} needs a {needed} in its slice")
        if one.replicas > descriptor.scaling.most:
            most = descriptor.scaling.most
            raise SliceError(f"{one.name}: a {one.function} has {most} replicas at most")
        _check_networks(one, descriptor, networks, inner)
        settings = _settings(one, descriptor)
        _check_references(one, descriptor, settings, functions)
        node = settings.get("node")
        if node is not None:
            if node in nodes:
                raise SliceError(f"{one.name}: another function is node {node}")
            nodes.add(node)
        done.append(one.model_copy(update={"settings": settings}))
    return body.model_copy(update={"functions": done})


def _check_networks(
    one: FunctionBody,
    descriptor: Descriptor,
    networks: Mapping[str, NetworkBody],
    inner: set[str],
) -> None:
    names = [attached.network for attached in one.networks]
    if len(set(names)) < len(names):
        raise SliceError(f"{one.name}: a network is there twice")
    for attached in one.networks:
        network = networks.get(attached.network)
        if network is None:
            raise SliceError(f"{one.name}: the slice has no network {attached.network}")
        if attached.address is not None and network.attachment is None:
            raise SliceError(f"{one.name}: addresses on {network.name} are given by the service")
    if descriptor.forwards:
        if len(names) != 2:
            raise SliceError(f"{one.name}: a {one.function} is between two networks")
        if networks[names[0]].attachment is not None:
            raise SliceError(f"{one.name}: its first network is one of the slice's own")
        if names[0] in inner:
            raise SliceError(f"{one.name}: {names[0]} has another way out already")
        inner.add(names[0])


def _settings(one: FunctionBody, descriptor: Descriptor) -> dict[str, Any]:
    try:
        found = settings_model(descriptor).model_validate(one.settings)
    except ValidationError as error:
        raise SliceError(f"{one.name}: settings/{first_fault(error)}") from error
    settings = found.model_dump(mode="json")
    if len(found.model_dump_json()) > MOST_SETTINGS_BYTES:
        raise SliceError(f"{one.name}: settings may have {MOST_SETTINGS_BYTES} bytes")
    return settings


def _check_references(
    one: FunctionBody,
    descriptor: Descriptor,
    settings: Mapping[str, Any],
    functions: Mapping[str, FunctionBody],
) -> None:
    own = {attached.network for attached in one.networks}
    for name, declared in descriptor.settings.items():
        if declared.kind not in ("function", "functions"):
            continue
        wanted = "shaper" if declared.kind == "function" else "dns"
        named = [settings[name]] if declared.kind == "function" else settings[name]
        for other in named:
            found = functions.get(other)
            if found is None or found.function != wanted:
                raise SliceError(f"{one.name}: the slice has no {wanted} {other}")
            if not own & {attached.network for attached in found.networks}:
                raise SliceError(f"{one.name}: it has no network in common with {other}")
