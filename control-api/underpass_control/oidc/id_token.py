"""The validation of ID tokens (OpenID Connect Core 1.0, § 3.1.3.7)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet
from joserfc.jws import JWSRegistry

# Signatures that only the provider can make: neither `none` nor those with a shared secret.
_ALGORITHMS = [
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
]
_KEY_TYPES = frozenset({"RSA", "EC", "OKP"})
_MOST_KEYS = 100
# How far the provider's clock may be from ours.
_LEEWAY_S = 60
_LONGEST_SUBJECT = 255


class IdTokenError(ValueError):
    """The token is not to be believed; the text says why."""


class UnknownKeyError(IdTokenError):
    """The token names a key that is not among those that are known."""


@dataclass(frozen=True)
class Expected:
    """The expected issuer and audience of a token, and the attempt that it is for."""

    issuer: str
    client_id: str
    nonce: str


def keys_of(document: Mapping[str, Any]) -> KeySet:
    """Return the keys of a JWK set that signatures may be made with; others are left out.

    Raises:
        IdTokenError: There are none.
    """
    listed = document.get("keys")
    keys: list[Key] = []
    for one in listed[:_MOST_KEYS] if isinstance(listed, list) else []:
        if not isinstance(one, dict) or one.get("kty") not in _KEY_TYPES:
            continue
        if one.get("use", "sig") != "sig":
            continue
        try:
            keys.append(JWKRegistry.import_key(one))
        except (JoseError, ValueError, TypeError):
            # Skip an unusable key: the others may be good.
            continue
    if not keys:
        raise IdTokenError("the provider has no keys to verify ID tokens with")
    return KeySet(keys)


def verified(text: str, keys: KeySet, expected: Expected, now_s: int) -> dict[str, Any]:
    """Return the claims of an ID token.

    Raises:
        IdTokenError: It is not to be believed.
    """
    registry = JWSRegistry(algorithms=_ALGORITHMS, strict_check_header=False)
    try:
        claims = jwt.decode(text, keys, registry=registry).claims
        jwt.JWTClaimsRegistry(
            now=now_s,
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": expected.issuer},
            aud={"essential": True, "value": expected.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        ).validate(claims)
    except InvalidKeyIdError as error:
        raise UnknownKeyError("the ID token is signed with a key that is not known") from error
    except (JoseError, ValueError, TypeError) as error:
        raise IdTokenError(f"the ID token is not valid: {error}") from error
    nonce, subject = claims.get("nonce"), claims["sub"]
    if not isinstance(nonce, str) or not hmac.compare_digest(
        nonce.encode(), expected.nonce.encode()
    ):
        raise IdTokenError("the ID token is not for this attempt to sign in: its nonce differs")
    audience = claims["aud"]
    many = isinstance(audience, list) and len(audience) > 1
    if claims.get("azp", expected.client_id if not many else None) != expected.client_id:
        raise IdTokenError("the ID token was issued to somebody else: azp")
    if not 0 < len(subject) <= _LONGEST_SUBJECT or not subject.isprintable():
        raise IdTokenError("the ID token has no subject that can be kept")
    return claims
