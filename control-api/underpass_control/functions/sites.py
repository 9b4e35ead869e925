"""A site's file: the operator says where slices attach, and how much they may use."""

from __future__ import annotations

import tomllib
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from underpass_control.functions.addressing import Attachment
from underpass_control.functions.containers import POOL, Site
from underpass_control.functions.kinds import Rate
from underpass_control.functions.slices import NetworkName, SliceName
from underpass_control.validation import first_fault, worded

# The engine's own networks: on these a container would see the host or other containers.
_ENGINES_OWN = ("host", "none", "bridge", "default")
_NAME = worded(
    r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$",
    "have 1 to 64 of A-Z, a-z, 0-9, _, . and -, and begin with a letter",
)


class SiteError(ValueError):
    """The file is wrong; the text says why."""


def _network(name: str) -> str:
    if name in _ENGINES_OWN:
        raise ValueError(f"{name} is the engine's own network")
    return name


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AttachmentFile(_Strict):
    """A network of the engine, and the tenants whose slices may attach to it.

    Attributes:
        tenant_send_bps, tenant_receive_bps: the most that all slices of one tenant may send and
            receive over it; None: no maximum.
    """

    name: NetworkName
    # The engine sorts networks by name; those of slices begin with a digit and come first.
    network: Annotated[str, Field(pattern=_NAME), AfterValidator(_network)]
    tenants: Annotated[list[str], Field(min_length=1)]
    gateway: IPv4Address | None = None
    tenant_send_bps: Rate | None = None
    tenant_receive_bps: Rate | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether a tenant's slices have a maximum there."""
        return self.tenant_send_bps is not None or self.tenant_receive_bps is not None


class SiteFile(_Strict):
    """A site.

    Attributes:
        pool: where slices have their own networks, a /24 each.
        cpus, memory_mb: the most that all slices together may have.
        tenant_cpus, tenant_memory_mb: the most that those of one tenant may have; None: half.
        certificates: the folder with those of nodes: `TENANT/nodes/NODE`.
    """

    site: SliceName = "default"
    pool: IPv4Network = POOL
    cpus: Annotated[float, Field(gt=0)]
    memory_mb: Annotated[int, Field(gt=0)]
    tenant_cpus: Annotated[float, Field(gt=0)] | None = None
    tenant_memory_mb: Annotated[int, Field(gt=0)] | None = None
    certificates: Path = Path("/etc/underpass/slices-pki")
    attachment: list[AttachmentFile] = []

    @property
    def most_cpus_of_tenant(self) -> float:
        """Return the most that one tenant's slices may have."""
        return self.cpus / 2 if self.tenant_cpus is None else self.tenant_cpus

    @property
    def most_memory_mb_of_tenant(self) -> float:
        """Return the most that one tenant's slices may have."""
        return self.memory_mb / 2 if self.tenant_memory_mb is None else self.tenant_memory_mb

    @property
    def place(self) -> Site:
        """Return the site for rendering slices."""
        attachments = {
            one.name: Attachment(one.name, one.network, frozenset(one.tenants), one.gateway)
            for one in self.attachment
        }
        return Site(attachments, self.pool)


def read(path: Path) -> SiteFile:
    """Read a site's file.

    Raises:
        SiteError: It is wrong.
    """
    try:
        found = SiteFile.model_validate(tomllib.loads(path.read_text()))
    except ValidationError as error:
        raise SiteError(f"{path}: {first_fault(error)}") from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SiteError(f"{path}: {error}") from error
    names = [one.name for one in found.attachment]
    if len(set(names)) < len(names):
        raise SiteError(f"{path}: an attachment is there twice")
    if found.pool.prefixlen > 24:
        raise SiteError(f"{path}: a pool has room for a slice's /24 at least")
    return found
