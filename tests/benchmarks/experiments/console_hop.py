"""The console's first load over the satellite hop itself, with TLS and an empty cache.

Until the form to sign in shows, and, with a token in the address, until a fleet does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.control_service import (
    ControlService,
    put_full_beam,
    until_ready,
)
from tests.benchmarks.moving_fleet import SOFTWARE_GL, missing, position_of
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.reporting_links import BEAM_BPS, GATEWAY, TERMINALS, report_links
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
# Notes the frames in which the table first shows a link's state, and the map all vehicles: only
# these are drawn as points (`console/src/map/vehicles-layer.ts`).
_WATCH_FLEET = f"""(() => {{
  const note = what => requestAnimationFrame(() => {{ globalThis[what] ??= performance.now(); }});
  new MutationObserver((_changes, observer) => {{
    if (document.querySelector(".vehicles tbody .badge.up") === null) return;
    observer.disconnect();
    note("tableAt");
  }}).observe(document, {{ attributes: true, childList: true, subtree: true }});
  const {{ drawArrays }} = WebGL2RenderingContext.prototype;
  WebGL2RenderingContext.prototype.drawArrays = function (mode, first, count) {{
    drawArrays.call(this, mode, first, count);
    if (mode === this.POINTS && count === {TERMINALS}) note("mapAt");
  }};
}})()"""
_SHOWN = "[globalThis.tableAt, globalThis.mapAt].map(at => at ?? null)"
_SHOWN_WITHIN_S, _LOOK_EACH_MS = 120.0, 200.0
_IN_A_POST = 500
# Until the service has had some reports of all links.
_REPORTED_S = 5.0


@dataclass(frozen=True)
class _Fleet:
    """The times until the table and the map showed the fleet, and the bytes received until both."""

    table_s: float
    map_s: float
    bytes: int


@dataclass(frozen=True)
class _Load:
    """The time until the page was usable, the bytes received, and the timings."""

    usable_s: float
    bytes: int
    steps_s: list[float]


def run(settings: Settings) -> Result:
    """Open the sign-in page and a fleet, each time in a browser without cache or connection."""
    result = Result("console-hop")
    result.told["underpass"] = "nothing: the hop alone lies between browser and service"
    if result.left_out(missing() or programs.missing("satlink")):
        return result
    with Testbed(PROFILE_V, seed=settings.seed) as testbed:
        service = _serve(testbed)
        runs = settings.runs or _RUNS
        with _reporting(testbed, service), sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=_chromium_in(testbed.terminal.client, testbed.dir),
                chromium_sandbox=os.geteuid() != 0,
                args=["--ignore-certificate-errors", *SOFTWARE_GL],
            )
            loads = [_load(browser) for _ in range(runs)]
            fleets = [_load_fleet(browser, service.operator) for _ in range(runs)]
            browser.close()
    for name, values in (
        ("round-trips", [one.usable_s / PROFILE_V.rtt_s for one in loads]),
        ("bytes", [one.bytes / 1000 for one in loads]),
        ("table", [one.table_s / PROFILE_V.rtt_s for one in fleets]),
        ("map", [one.map_s / PROFILE_V.rtt_s for one in fleets]),
        ("fleet-bytes", [one.bytes / 1000 for one in fleets]),
    ):
        made = record(f"console.hop.{name}", "underpass", values)
        result.records.append(made)
        say(f"{made.id}: {made.median:.3g} {made.unit}")
    result.notes["measured"] = (
        "from the navigation to the frame with the form to sign in, or, with a token in the "
        f"address, with the table's links and the map's vehicles of {TERMINALS:,} terminals; TCP "
        "and TLS 1.3 handshakes are in it, a name's look-up is not"
    )
    names = ("TCP", "TLS", "first byte of the page", "page", "script")
    for number, name in enumerate(names):
        steps = [one.steps_s[number] / PROFILE_V.rtt_s for one in loads]
        result.notes[f"{name}, round trips since the navigation"] = round(quantile(steps, 0.5), 2)
    return result


def _serve(testbed: Testbed) -> ControlService:
    """Run the service beside the origin, behind TLS."""
    environment = {
        "UNDERPASS_DATABASE": f"sqlite:///{testbed.dir}/control.db",
        "PYTHONPATH": f"{_ROOT / 'control-api'}:{_ROOT}",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "underpass_control"]
    subprocess.run([*command, "migrate"], env=os.environ | environment, check=True)

    def token(role: str) -> str:
        create = [*command, "token", "create", role, "--role", role]
        environ = os.environ | environment
        made = subprocess.run(create, env=environ, check=True, capture_output=True, text=True)
        return made.stdout.strip()

    operator, gateway = token("operator"), token("gateway")
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
    return ControlService(_PLAIN, service.pid, operator, gateway)


@contextlib.contextmanager
def _reporting(testbed: Testbed, service: ControlService) -> Iterator[None]:
    """Register a fleet, post its positions once, and report on its links each second."""
    reported, over = threading.Event(), threading.Event()

    def report() -> None:
        # The service listens on the loopback of its own namespace.
        with testbed.origin.entered():
            asyncio.run(_report(service, reported, over))

    with ThreadPoolExecutor(1) as pool:
        reporting = pool.submit(report)
        try:
            while not reported.wait(0.5):
                if reporting.done():
                    raise RuntimeError("the fleet does not report") from reporting.exception()
            yield
        finally:
            over.set()
        reporting.result()


async def _report(
    service: ControlService, reported: threading.Event, over: threading.Event
) -> None:
    async with (
        service.session(service.operator) as operator,
        service.session(service.gateway) as gateway,
    ):
        await until_ready(operator)
        await put_full_beam(operator, TERMINALS, GATEWAY, BEAM_BPS)
        for first in range(1, TERMINALS + 1, _IN_A_POST):
            nodes = range(first, first + _IN_A_POST)
            positions = [position_of(node, time.time()) for node in nodes]
            async with gateway.post("/v1/positions", json={"positions": positions}) as answer:
                answer.raise_for_status()
        links = asyncio.create_task(report_links(gateway))
        await asyncio.sleep(_REPORTED_S)
        reported.set()
        while not over.is_set():
            await asyncio.sleep(0.2)
            if links.done():
                links.result()
        links.cancel()
        await asyncio.gather(links, return_exceptions=True)


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


def _load_fleet(browser: Browser, token: str) -> _Fleet:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    traffic = Traffic(page)
    page.add_init_script(_WATCH_FLEET)
    page.goto(f"https://{addresses.ORIGIN}:{_TLS}/#token={token}")
    table_ms, map_ms = _shown_ms(page)
    loaded = sum(traffic.bytes.values())
    context.close()
    return _Fleet(table_ms / 1000, map_ms / 1000, loaded)


def _shown_ms(page: Page) -> tuple[float, float]:
    """Wait until both have shown the fleet; one that never does counts with the time limit."""
    deadline = time.monotonic() + _SHOWN_WITHIN_S
    while None in (shown := page.evaluate(_SHOWN)) and time.monotonic() < deadline:
        page.wait_for_timeout(_LOOK_EACH_MS)
    table_ms, map_ms = (1000 * _SHOWN_WITHIN_S if at is None else at for at in shown)
    return table_ms, map_ms
