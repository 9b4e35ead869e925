"""The console's first load over the satellite hop itself, with TLS and an empty cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.moving_fleet import missing
from tests.benchmarks.records import Result, quantile, record
from tests.console.test_first_load import Traffic
from tests.testbed import addresses, programs
from tests.testbed.namespace import Namespace
from tests.testbed.profile import PROFILE_V
from tests.testbed.topology import Testbed, listens

_RUNS = 5
_PLAIN, _TLS = 8470, 443
_ROOT = Path(__file__).parents[3]
# Notes when the sign-in form shows, which takes the console's script, and the load's timings.
_WATCH = """new MutationObserver((_changes, observer) => {
  if (document.querySelector("#sign-in:not([hidden]) input") === null) return;
  observer.disconnect();
  requestAnimationFrame(() => { globalThis.usableAt = performance.now(); });
}).observe(document, { attributes: true, childList: true, subtree: true });"""
# The times at which the TCP connection, TLS, the page and the script were ready.
_STEPS = """(() => {
  const [page] = performance.getEntriesByType("navigation");
  const script = performance.getEntriesByType("resource").find(one => one.name.endsWith(".js"));
  return [page.secureConnectionStart, page.requestStart, page.responseStart, page.responseEnd,
    script.responseEnd];
})()"""


@dataclass(frozen=True)
class _Load:
    """The time until the page was usable, the bytes received, and the timings."""

    usable_s: float
    bytes: int
    steps_s: list[float]


def run(settings: Settings) -> Result:
    """Open the sign-in page, each time in a browser without cache or connection."""
    result = Result("console-hop")
    result.told["underpass"] = "nothing: the hop alone lies between browser and service"
    if result.left_out(missing() or programs.missing("satlink")):
        return result
    with Testbed(PROFILE_V, seed=settings.seed) as testbed:
        _serve(testbed)
        runs = settings.runs or _RUNS
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=_chromium_in(testbed.terminal.client, testbed.dir),
                chromium_sandbox=os.geteuid() != 0,
                args=["--ignore-certificate-errors"],
            )
            loads = [_load(browser) for _ in range(runs)]
            browser.close()
    for name, values in (
        ("round-trips", [one.usable_s / PROFILE_V.rtt_s for one in loads]),
        ("bytes", [one.bytes / 1000 for one in loads]),
    ):
        made = record(f"console.hop.{name}", "underpass", values)
        result.records.append(made)
        say(f"{made.id}: {made.median:.3g} {made.unit}")
    result.notes["measured"] = (
        "from the navigation to the frame with the form to sign in; TCP and TLS 1.3 handshakes "
        "are in it, a name's look-up is not"
    )
    names = ("TCP", "TLS", "first byte of the page", "page", "script")
    for number, name in enumerate(names):
        steps = [one.steps_s[number] / PROFILE_V.rtt_s for one in loads]
        result.notes[f"{name}, round trips since the navigation"] = round(quantile(steps, 0.5), 2)
    return result


def _serve(testbed: Testbed) -> None:
    """Run the service beside the origin, behind TLS."""
    environment = {
        "UNDERPASS_DATABASE": f"sqlite:///{testbed.dir}/control.db",
        "PYTHONPATH": f"{_ROOT / 'control-api'}:{_ROOT}",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "underpass_control"]
    subprocess.run([*command, "migrate"], env=os.environ | environment, check=True)
    serve = [*command, "serve", "--port", str(_PLAIN), "--no-migrate"]
    service = testbed.start("control", serve, testbed.origin, env=environment)
    service.wait_until(lambda: listens(testbed.origin, _PLAIN), timeout_s=60)
    certificate, key = (str(testbed.dir / name) for name in ("console.pem", "console.key"))
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    request += ["-nodes", "-days", "1", "-subj", "/CN=console", "-out", certificate, "-keyout", key]
    subprocess.run(request, check=True, capture_output=True)
    front = [sys.executable, "-m", "tests.benchmarks.tls_front", certificate, key]
    tls = testbed.start("tls", [*front, str(_TLS), str(_PLAIN)], testbed.origin, env=environment)
    tls.wait_until(lambda: listens(testbed.origin, _TLS), timeout_s=20)


def _chromium_in(namespace: Namespace, folder: Path) -> str:
    """Return a program that runs Chromium in a namespace."""
    path = folder / "chromium"
    argv = namespace.argv(shutil.which("chromium") or "chromium")
    path.write_text(f'#!/bin/sh\nexec {" ".join(argv)} "$@"\n')
    path.chmod(0o755)
    return str(path)


def _load(browser: Browser) -> _Load:
    context = browser.new_context()
    page = context.new_page()
    traffic = Traffic(page)
    page.add_init_script(_WATCH)
    page.goto(f"https://{addresses.ORIGIN}:{_TLS}/")
    page.get_by_label("Token").wait_for()
    # Wait for the frame that shows it, and the script after it.
    page.wait_for_timeout(500)
    usable_s = page.evaluate("usableAt") / 1000
    steps_s = [each / 1000 for each in page.evaluate(_STEPS)]
    context.close()
    return _Load(usable_s, sum(traffic.bytes.values()), steps_s)
