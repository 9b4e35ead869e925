"""The provider that users sign in by, and what its claims give them: an operator's file, TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from yarl import URL

from underpass_control.roles import Role
from underpass_control.validation import ONE_LINE, first_fault, worded

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_LONGEST_SECRET = 4096
_SCOPE = worded(
    r"^[!#-\[\]-~]{1,100}$", "have 1 to 100 visible ASCII characters, and neither quotes nor \\"
)

Text = Annotated[str, Field(min_length=1, max_length=255, pattern=ONE_LINE)]


class ConfigurationError(ValueError):
    """What is configured cannot be used; the text says what and why."""


def safe_url(text: str) -> str:
    """Return a URL to which secrets may be sent.

    Raises:
        ValueError: It has neither TLS nor leads to this host itself, or it is no URL.
    """
    url = URL(text)
    if url.scheme != "https" and not (url.scheme == "http" and url.host in _LOOPBACK):
        raise ValueError(f"{text!r} does not begin with https://")
    if not url.host or url.user is not None or url.fragment:
        raise ValueError(f"{text!r} has no host, or has a user or a fragment")
    return text


def public_url(text: str) -> str:
    """Return where browsers find the service, with a slash at its end.

    Raises:
        ValueError: It is no such URL.
    """
    url = URL(safe_url(text))
    if url.query_string:
        raise ValueError(f"{text!r} has a query")
    return text if text.endswith("/") else text + "/"


class Grant(BaseModel):
    """What a value of a claim gives: a role, in a tenant or in the whole system."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: Text
    value: Text
    role: Literal["viewer", "operator", "administrator"]
    tenant: Text | None = None

    def fits(self, claims: Mapping[str, Any]) -> bool:
        """Tell whether somebody with these claims has what it asks for."""
        found = claim_of(claims, self.claim)
        values = found if isinstance(found, list) else [found]
        return any(_text(one) == self.value for one in values)


class ProviderFile(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: Annotated[str, AfterValidator(safe_url)]
    client_id: Text
    # None: a public client, which PKCE alone protects.
    client_secret_file: Path | None = None
    # The provider's name on the console's button.
    label: Annotated[Text, Field(max_length=60)]
    scopes: list[Annotated[str, Field(pattern=_SCOPE)]] = ["profile"]
    name_claim: Text = "preferred_username"
    # After this time, the provider is asked again for a user's identity and claims.
    session_hours: Annotated[float, Field(gt=0, le=8760)] = 12
    grants: Annotated[list[Grant], Field(min_length=1, max_length=1000)]


@dataclass(frozen=True)
class Configuration:
    """The provider, and where browsers come back to."""

    file: ProviderFile
    secret: str | None
    # Where browsers find the service; ends with a slash.
    public_url: str

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends a browser with its answer."""
        return self.public_url + "v1/signed-in"

    def grant_of(self, claims: Mapping[str, Any]) -> tuple[Role, str | None] | None:
        """Return the role and tenant of the first grant that fits; None if none does."""
        for grant in self.file.grants:
            if grant.fits(claims):
                return Role(grant.role), grant.tenant
        return None


def read_configuration(path: Path, public: str) -> Configuration:
    """Read the file, and the secret's beside it.

    Raises:
        ConfigurationError: One of them cannot be read or used.
    """
    if not public:
        raise ConfigurationError("--oidc needs --public-url: where browsers find the service")
    try:
        file = ProviderFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        return Configuration(file, _secret(path, file), public_url(public))
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {first_fault(error)}") from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _secret(path: Path, file: ProviderFile) -> str | None:
    if file.client_secret_file is None:
        return None
    # Relative to the file that names it.
    text = (path.parent / file.client_secret_file).read_text(encoding="utf-8").strip()
    if not text or len(text) > _LONGEST_SECRET or not text.isprintable():
        raise ValueError(f"{file.client_secret_file} holds no client secret")
    return text


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by its path: `realm_access.roles`; None if there is none."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return found


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else None
