"""A provider that gives whatever answer a test asks for."""

from __future__ import annotations

import asyncio
import base64
import functools
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.control_api.oidc.real_provider import CLIENT_ID

Claims = dict[str, Any]


@functools.cache
def rsa_key(name: str) -> RSAKey:
    """Return the key of a name; keys are cached, since making one takes a while."""
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig"})


def part(value: object) -> str:
    """Return a part of a token."""
    return encoded(json.dumps(value).encode())


def encoded(data: bytes) -> str:
    """Return bytes as tokens encode them."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class HostileProvider:
    """It accepts any code; its answers are a good provider's, except for what a test changes."""

    def __init__(self) -> None:
        self.key = rsa_key("one")
        self.published = [self.key]
        # A test's changes to the metadata, to the claims, and to the signing of the token.
        self.metadata: Claims = {}
        self.claims: Callable[[Claims], Claims] = lambda claims: claims
        self.sign: Callable[[Claims], str] = self.signed
        self.userinfo: Claims = {}
        # Replaced answers, by path.
        self.instead: dict[str, Callable[[web.Request], Any]] = {}
        self.nonce = ""
        self.asked: list[str] = []

    async def start(self, port: int) -> None:
        """Listen."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._server = TestServer(application, port=port)
        await self._server.start_server()

    async def close(self) -> None:
        """Stop the provider."""
        await self._server.close()

    @property
    def issuer(self) -> str:
        """Its name."""
        return f"http://127.0.0.1:{self._server.port}"

    def signed(self, claims: Claims, *, kid: str = "one", key: RSAKey | None = None) -> str:
        """Return an ID token as a good provider makes it."""
        return jwt.encode({"alg": "RS256", "kid": kid}, claims, key or self.key, ["RS256"])

    def signed_with_public_key(self, claims: Claims) -> str:
        """Return an ID token whose HMAC has the public key, known to everybody, as its secret."""
        signed = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(claims)}"
        mac = hmac.digest(self.key.as_pem(private=False), signed.encode(), "sha256")
        return f"{signed}.{encoded(mac)}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.asked.append(path)
        if path in self.instead:
            answer = self.instead[path](request)
            if asyncio.iscoroutine(answer):
                answer = await answer
            assert isinstance(answer, web.StreamResponse)
            return answer
        if path == "/.well-known/openid-configuration":
            document = {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/auth",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
            }
            return web.json_response({**document, **self.metadata})
        if path == "/jwks":
            return web.json_response(
                {"keys": [one.as_dict(private=False) for one in self.published]}
            )
        if path == "/me":
            return web.json_response(self.userinfo)
        now = int(time.time())
        claims = self.claims(
            {
                "iss": self.issuer,
                "sub": "1",
                "aud": CLIENT_ID,
                "nonce": self.nonce,
                "iat": now,
                "exp": now + 300,
                "preferred_username": "ada",
                "groups": ["noc"],
            }
        )
        tokens = {"access_token": "at", "token_type": "Bearer", "id_token": self.sign(claims)}
        return web.Response(text=json.dumps(tokens), content_type="application/json")
