"""Descriptors of functions: how a container of each kind is made, and its possible settings.

They belong to the operator and are installed with the program. A slice names them and cannot change
them, so no image, capability or mount comes from a user who may set slices.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model

from underpass_control.functions.kinds import NAME, TYPES, FunctionName, Kind, PortNumber

# In an installed package and in the image beside this module; in a work tree in docker/.
_PACKAGE = Path(__file__).resolve().parent
_FOLDERS = (_PACKAGE / "descriptors", _PACKAGE.parents[2] / "docker" / "functions")
# The capabilities that a container may have at most: to set up its own network.
_CAPABILITIES = Literal["NET_ADMIN"]
_PATH = r"^/[a-z][a-z/]*$"


class DescriptorError(ValueError):
    """A descriptor is wrong; the text names the file."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Resources(_Strict):
    """The most that one container may use."""

    cpus: Annotated[float, Field(gt=0, le=16)]
    memory_mb: Annotated[int, Field(ge=16, le=65_536)]
    processes: Annotated[int, Field(ge=1, le=4_096)]


class Port(_Strict):
    """What the function listens on."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,14}$")]
    number: PortNumber
    protocol: Literal["tcp", "udp"] = "tcp"


class Health(_Strict):
    """A command that succeeds in a container that works."""

    command: Annotated[list[str], Field(min_length=1, max_length=16)]
    interval_s: Annotated[int, Field(ge=1, le=600)] = 5
    timeout_s: Annotated[int, Field(ge=1, le=60)] = 5
    start_s: Annotated[int, Field(ge=0, le=600)] = 20
    retries: Annotated[int, Field(ge=1, le=20)] = 3


class Scaling(_Strict):
    """How many containers may run side by side."""

    most: Annotated[int, Field(ge=1, le=8)] = 1


class Declared(_Strict):
    """A setting: of which kind, and what it is for. Without a default it is required."""

    kind: Kind
    help: str
    default: Any = None
    minimum: int | None = None
    maximum: int | None = None


class Descriptor(_Strict):
    """A kind of function.

    Attributes:
        configured_by: which writer makes its configuration (`configuration.py`).
        needs: kinds of which a slice with it has one, too.
        forwards: whether it is a router: the way out of its first network, into its second.
        volumes: folders that last as long as the slice, by name.
        sysctls: of the container's own network.
    """

    name: Annotated[str, Field(pattern=NAME)]
    summary: str
    image: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9./:@_-]{0,199}$")]
    command: list[str]
    configured_by: Literal["gateway", "firewall", "nat", "dns"]
    needs: list[FunctionName] = []
    forwards: bool = False
    capabilities: list[_CAPABILITIES] = []
    volumes: dict[FunctionName, Annotated[str, Field(pattern=_PATH)]] = {}
    tmpfs: list[Annotated[str, Field(pattern=r"^/[a-z][a-z/]*(:[a-z0-9=,]+)?$")]] = []
    sysctls: dict[Annotated[str, Field(pattern=r"^net\.[a-z0-9_.]+$")], str] = {}
    resources: Resources
    port: list[Port] = []
    health: Health
    scaling: Scaling = Scaling()
    settings: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")], Declared] = {}


def settings_model(descriptor: Descriptor) -> type[BaseModel]:
    """Return the model that settings of a function have to meet; its schema is JSON Schema."""
    members: dict[str, Any] = {}
    for name, one in descriptor.settings.items():
        default = ... if one.default is None else one.default
        members[name] = (_type_of(one), Field(default, description=one.help))
    title = f"settings of {descriptor.name}"
    return create_model(title, __config__=ConfigDict(extra="forbid", strict=True), **members)


def _type_of(one: Declared) -> Any:
    if one.kind == "integer":
        return Annotated[int, Field(ge=one.minimum, le=one.maximum)]
    return TYPES[one.kind]


def load(folder: Path) -> dict[str, Descriptor]:
    """Read all descriptors of a folder, by name.

    Raises:
        DescriptorError: One of them is wrong.
    """
    found = {}
    for path in sorted(folder.glob("*.toml")):
        try:
            one = Descriptor.model_validate(tomllib.loads(path.read_text()))
            _check(one)
        except (tomllib.TOMLDecodeError, ValidationError, ValueError) as error:
            raise DescriptorError(f"{path.name}: {error}") from error
        if path.stem != one.name:
            raise DescriptorError(f"{path.name}: it describes {one.name}")
        found[one.name] = one
    for one in found.values():
        missing = [name for name in one.needs if name not in found]
        if missing:
            raise DescriptorError(f"{one.name} needs {missing[0]}, which nothing describes")
    return found


def _check(one: Descriptor) -> None:
    for name, declared in one.settings.items():
        bounds = (declared.minimum is not None, declared.maximum is not None)
        if bounds != (declared.kind == "integer",) * 2:
            raise ValueError(f"{name}: an integer has bounds, and nothing else has")
        if declared.default is not None:
            try:
                TypeAdapter(_type_of(declared)).validate_python(declared.default, strict=True)
            except ValidationError as error:
                raise ValueError(f"{name}: its default is none: {error}") from error


@cache
def installed() -> Mapping[str, Descriptor]:
    """Return the descriptors that come with the program."""
    return load(next(one for one in _FOLDERS if one.is_dir()))
