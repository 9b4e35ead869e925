"""The provider, asked over HTTP within bounds of time and bytes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote_plus

from aiohttp import ClientError, ClientSession, ClientTimeout, encode_basic_auth
from joserfc.jwk import KeySet
from yarl import URL

from underpass_control.oidc.attempt import Attempt
from underpass_control.oidc.configuration import Configuration, claim_of, safe_url
from underpass_control.oidc.documents import Document, ProviderError
from underpass_control.oidc.id_token import (
    Expected,
    IdTokenError,
    UnknownKeyError,
    keys_of,
    verified,
)

# The bounds of every answer of the provider: time and bytes.
_WITHIN_S = 10.0
_MOST_BYTES = 256 << 10
_AT_ONCE = 8
_DISCOVERY = "/.well-known/openid-configuration"


@dataclass(frozen=True)
class Metadata:
    """The provider's metadata (OpenID Connect Discovery 1.0)."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    end_session_endpoint: str | None
    # The client's secret goes into the body, not into a header.
    secret_in_body: bool
    # Its answers name it (RFC 9207).
    answers_name_it: bool


class Provider:
    """The provider of a configuration; `close` ends its connections."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._session: ClientSession | None = None
        self._metadata = Document(self._ask_metadata)
        self._keys = Document(self._ask_keys)
        self._exchanging = asyncio.Semaphore(_AT_ONCE)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    @property
    def is_busy(self) -> bool:
        """Whether the most exchanges allowed at once are in progress."""
        return self._exchanging.locked()

    async def metadata(self) -> Metadata:
        """Return the provider's metadata.

        Raises:
            ProviderError: It cannot be asked.
        """
        return await self._metadata.get()

    async def sign_in_url(self, attempt: Attempt) -> str:
        """Return where a browser signs in.

        Raises:
            ProviderError: The provider cannot be asked.
        """
        file = self.configuration.file
        query = {
            "response_type": "code",
            "client_id": file.client_id,
            "redirect_uri": self.configuration.redirect_uri,
            "scope": " ".join(dict.fromkeys(["openid", *file.scopes])),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        endpoint = URL((await self.metadata()).authorization_endpoint)
        return str(endpoint.update_query(query))

    async def sign_out_url(self) -> str | None:
        """Return where a browser signs out of the provider; None if it has no such place.

        Raises:
            ProviderError: The provider cannot be asked.
        """
        endpoint = (await self.metadata()).end_session_endpoint
        if endpoint is None:
            return None
        query = {
            "client_id": self.configuration.file.client_id,
            "post_logout_redirect_uri": self.configuration.public_url,
        }
        return str(URL(endpoint).update_query(query))

    async def claims(self, attempt: Attempt, code: str) -> dict[str, Any]:
        """Exchange a code, and return the claims of who has signed in.

        Raises:
            ProviderError: It cannot be asked, or refuses the code.
            IdTokenError: Its ID token is not to be believed.
        """
        async with self._exchanging:
            metadata = await self.metadata()
            tokens = await self._exchange(metadata, attempt, code)
            id_token = tokens.get("id_token")
            if not isinstance(id_token, str):
                raise ProviderError("the provider has given no ID token")
            claims = await self._verified(id_token, attempt)
            file = self.configuration.file
            wanted = {file.name_claim, *(grant.claim for grant in file.grants)}
            if metadata.userinfo_endpoint and any(claim_of(claims, one) is None for one in wanted):
                more = await self._userinfo(metadata.userinfo_endpoint, tokens)
                if more.get("sub") != claims["sub"]:
                    raise IdTokenError("the provider tells of another user than the ID token's")
                # The signed claims take precedence.
                claims = {**more, **claims}
            return claims

    async def _exchange(self, metadata: Metadata, attempt: Attempt, code: str) -> dict[str, Any]:
        file, secret = self.configuration.file, self.configuration.secret
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.configuration.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        headers = {}
        if secret is None or metadata.secret_in_body:
            form["client_id"] = file.client_id
        if secret is not None and metadata.secret_in_body:
            form["client_secret"] = secret
        elif secret is not None:
            # Each encoded by itself (RFC 6749, § 2.3.1).
            headers["Authorization"] = encode_basic_auth(
                quote_plus(file.client_id), quote_plus(secret)
            )
        return await self._ask("POST", metadata.token_endpoint, headers=headers, form=form)

    async def _verified(self, text: str, attempt: Attempt) -> dict[str, Any]:
        file = self.configuration.file
        expected = Expected(file.issuer, file.client_id, attempt.nonce)
        try:
            return verified(text, await self._keys.get(), expected, int(time.time()))
        except UnknownKeyError:
            # The provider may have new keys.
            return verified(text, await self._keys.newer(), expected, int(time.time()))

    async def _userinfo(self, url: str, tokens: Mapping[str, Any]) -> dict[str, Any]:
        token, kind = tokens.get("access_token"), tokens.get("token_type")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise ProviderError("the provider has given no access token")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise ProviderError("the provider's access token is no bearer token")
        return await self._ask("GET", url, headers={"Authorization": f"Bearer {token}"})

    async def _ask_metadata(self) -> Metadata:
        issuer = self.configuration.file.issuer
        found = await self._ask("GET", issuer.rstrip("/") + _DISCOVERY)
        if found.get("issuer") != issuer:
            raise ProviderError(f"the provider says that it is not {issuer}")
        methods = found.get("token_endpoint_auth_methods_supported")
        basic = not isinstance(methods, list) or "client_secret_basic" in methods
        return Metadata(
            authorization_endpoint=_needed(found, "authorization_endpoint"),
            token_endpoint=_needed(found, "token_endpoint"),
            jwks_uri=_needed(found, "jwks_uri"),
            userinfo_endpoint=_endpoint(found, "userinfo_endpoint"),
            end_session_endpoint=_endpoint(found, "end_session_endpoint"),
            secret_in_body=not basic,
            answers_name_it=found.get("authorization_response_iss_parameter_supported") is True,
        )

    async def _ask_keys(self) -> KeySet:
        try:
            return keys_of(await self._ask("GET", (await self.metadata()).jwks_uri))
        except IdTokenError as error:
            raise ProviderError(str(error)) from error

    async def _ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return the JSON object that a URL of the provider answers with."""
        if self._session is None:
            # No compression: the bound would only apply after decompression. No redirects: they
            # could lead anywhere with the request's secrets.
            self._session = ClientSession(
                timeout=ClientTimeout(total=_WITHIN_S),
                auto_decompress=False,
                headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            )
        try:
            async with self._session.request(
                method, url, headers=headers, data=form, allow_redirects=False
            ) as answer:
                content = bytearray()
                async for part in answer.content.iter_chunked(1 << 14):
                    content += part
                    if len(content) > _MOST_BYTES:
                        raise ProviderError("the provider answers with more than it may")
        except TimeoutError as error:
            detail = f"the provider does not answer within {_WITHIN_S:.0f} s"
            raise ProviderError(detail) from error
        except (ClientError, OSError, ValueError) as error:
            detail = f"the provider is not reached: {str(error) or type(error).__name__}"
            raise ProviderError(detail) from error
        return _object(answer.status, bytes(content))


def _object(status: int, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if status == HTTPStatus.OK and isinstance(found, dict):
        return found
    if isinstance(found, dict) and isinstance(found.get("error"), str):
        raise ProviderError(f"the provider answers {status}: {found['error'][:100]}")
    raise ProviderError(f"the provider answers {status}, and not with a JSON object")


def _needed(found: Mapping[str, Any], name: str) -> str:
    url = _endpoint(found, name)
    if url is None:
        raise ProviderError(f"the provider does not say its {name}")
    return url


def _endpoint(found: Mapping[str, Any], name: str) -> str | None:
    url = found.get(name)
    if url is None:
        return None
    try:
        return safe_url(url)
    except (ValueError, TypeError) as error:
        raise ProviderError(f"the provider's {name} is of no use: {error}") from error
