"""Signing in by an OpenID Connect provider: the authorization code flow with PKCE (RFC 9700)."""
