"""The service behind a reverse proxy with TLS, and a browser that signs in by a provider."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from underpass_control.oidc.configuration import read_configuration
from underpass_control.settings import Settings

from tests.control_api.oidc.real_provider import CLIENT_ID, SECRET
from tests.control_api.service.api import Api, Reply, served

PUBLIC = "https://noc.example/console/"
_FILE = """
issuer = "{issuer}"
client_id = "{client}"
client_secret_file = "secret"
label = "Northern Coaches <b>"
name_claim = "preferred_username"
session_hours = {hours}

[[grants]]
claim = "groups"
value = "admins"
role = "administrator"

[[grants]]
claim = "groups"
value = "noc"
role = "operator"

[[grants]]
claim = "groups"
value = "north"
role = "viewer"
tenant = "north"

[[grants]]
claim = "groups"
value = "nowhere"
role = "viewer"
tenant = "nowhere"
"""


@contextmanager
def service_of(url: str, issuer: str, folder: Path, *, hours: float = 12) -> Iterator[Api]:
    """Run the service with a provider."""
    (folder / "secret").write_text(SECRET + "\n")
    path = folder / "oidc.toml"
    path.write_text(_FILE.format(issuer=issuer, client=CLIENT_ID, hours=hours))
    settings = Settings(
        provider=read_configuration(path, PUBLIC),
        trusted_proxies=(ip_network("127.0.0.0/8"),),
    )
    with served(url, settings) as running:
        yield running


class ProxiedBrowser:
    """A browser before the proxy: it keeps cookies, and sends them where they belong."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.cookies: dict[str, str] = {}
        self.csrf = ""

    def call(self, method: str, path: str, body: object = None) -> Reply:
        """Ask the service; a path may be a whole public URL."""
        path = "/" + path.removeprefix(PUBLIC).removeprefix("/")
        headers = {"X-Forwarded-Proto": "https", "X-CSRF-Token": self.csrf}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        answer = self._api.run(
            self._api.ask(method, path, body, caller=None, headers=headers, follow=False)
        )
        for line in answer.headers.getall("Set-Cookie", []):
            for morsel in SimpleCookie(line).values():
                assert morsel["httponly"]
                assert morsel["secure"]
                self.cookies[morsel.key] = morsel.value
                if not morsel.value:
                    del self.cookies[morsel.key]
        return answer

    def begin(self, page: str = "") -> str:
        """Begin to sign in; return the URL at which the provider is asked."""
        answer = self.call("GET", f"/v1/sign-in?page={page}")
        assert answer.status == 302, answer.text
        return answer.headers["Location"]

    def who(self) -> Reply:
        """Ask who is signed in."""
        answer = self.call("GET", "/v1/session")
        if answer.status == 200:
            self.csrf = answer.json["csrf_token"]
        return answer


def query_of(url: str) -> dict[str, str]:
    """Return the query of a URL."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
