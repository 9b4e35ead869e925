"""A running hub and control service expose all that rules and boards name, to a Prometheus."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from underpass_control.metrics import Metrics

from tests.packaging import prometheus, watched
from tests.packaging.expressions import ALWAYS, family, named
from tests.packaging.prometheus import HUB, TERMINAL, Access, Prometheus
from tests.testbed import addresses
from tests.testbed.client.transfer import download
from tests.testbed.control import PORT, REPORTS, Control, ControlError
from tests.testbed.node import Options, Pair
from tests.testbed.profile import Link, symmetric
from tests.testbed.topology import Testbed

_MISSING = prometheus.missing()
pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(bool(_MISSING), reason=_MISSING or ""),
]

_BEAM = symmetric("watched", Link(rate_bps=8_000_000, delay_ms=50.0, queue_ms=500.0))
_SERVICE = f"{addresses.CONTROL}:{PORT}"
_ENDLESS = 1_000_000_000_000
# Grafana's variables, for a scrape every two seconds.
_VARIABLES = {"$__rate_interval": "60s", "$__range": "60s"}
_SHOWN_WITHIN_S = 90.0
_QUERIES = [query for path in watched.BOARDS for query in watched.queries(path)]
# The rule for unforeseen blockages recognises by this series a plan that foresees one.
_PLANNED = 'underpass_plan_rate_bytes_per_second{link="return", role="pass-on"}'
# These have no series while all is well, or without HTTPS.
_METRICS = Metrics()
_OF_FAULTS = {
    "underpass_control_planning_failures": _METRICS.planning_failures,
    "underpass_control_ledger_faults": _METRICS.ledger_faults,
    "underpass_control_certificate_expiry_timestamp_seconds": _METRICS.certificate_expiry,
}


@dataclass
class Watched:
    """The results from Prometheus."""

    prometheus: Prometheus
    families: set[str] = field(default_factory=set)
    series: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    # The first answer to each query that has series.
    answers: dict[watched.Query, list[dict[str, Any]]] = field(default_factory=dict)

    def expression(self, query: watched.Query) -> str:
        """Return a panel's expression as Grafana sends it."""
        [path] = [path for path in watched.BOARDS if path.stem == query.board]
        selector, label = watched.variable(path)
        values = sorted({one[label] for one in self.prometheus.series(selector)})
        asked = query.expression.replace("$instance", "|".join(map(re.escape, values)))
        for name, value in _VARIABLES.items():
            asked = asked.replace(name, value)
        # Grafana escapes twice: in a PromQL string, a backslash is an escape, too.
        return asked.replace("\\", "\\\\")

    def least(self, selector: str) -> float:
        """Return a series' least value so far; infinite if there is none."""
        found = self.prometheus.query(f"min(min_over_time({selector}[10m]))")
        return float(found[0]["value"][1]) if found else math.inf

    def look(self) -> None:
        """Read all present series."""
        self.families = {family(one) for one in self.prometheus.families()}
        self.series = {}
        for one in self.prometheus.series('{job=~"underpass.*"}'):
            self.series.setdefault(one["__name__"], []).append(one)


@pytest.fixture(scope="module")
def seen() -> Iterator[Watched]:
    """A terminal downloads and is blocked, once as announced; somebody mistypes a password."""
    access = Access()
    with Testbed(_BEAM, shared=True) as testbed:
        control = Control(testbed)
        control.register()
        # A failed attempt to sign in, for its metric.
        with pytest.raises(ControlError, match="401"):
            control.call("POST", "/v1/session", {"name": "nobody", "password": "a wrong one"})
        hub = {**control.hub_config, "api": access.api(HUB), "custody": {"durability": "disk"}}
        options = Options(
            terminal={**REPORTS, "api": access.api(TERMINAL)},
            hub=hub,
            meters={"satellite": {"budget_bytes": _ENDLESS, "period": "once"}},
        )
        pair = Pair(testbed, options)
        found = Watched(Prometheus(testbed, access, control, _SERVICE))
        stop = threading.Event()
        busy = threading.Thread(target=_download, args=(pair, stop))
        busy.start()
        try:
            pair.hub.process.wait_until(lambda: _probed(pair))
            _announce_and_block(pair)
            until = time.monotonic() + _SHOWN_WITHIN_S
            while (_empty(found) or found.least(_PLANNED) > 0) and time.monotonic() < until:
                time.sleep(1.0)
            found.look()
            yield found
        finally:
            stop.set()
            busy.join()


def _download(pair: Pair[Testbed], stop: threading.Event) -> None:
    route = pair.http_forward()
    download(pair.client, addresses.ORIGIN, _ENDLESS, route=route, deadline_s=200, stop=stop)


def _announce_and_block(pair: Pair[Testbed]) -> None:
    """Block the terminal twice, the second time as announced."""
    now_s, in_s, duration_s = time.monotonic(), 16.0, 5.0
    pair.terminal.api.announce(in_s=in_s, duration_s=duration_s, confidence=0.95)
    blockages = [(now_s + 1.0, 4.0), (now_s + in_s, duration_s)]
    pair.testbed.satlink.schedule(pair.testbed.terminal.name, blockages)


def _probed(pair: Pair[Testbed]) -> bool:
    return all(path["link"]["probed"] for path in pair.hub.status()["paths"])


def _empty(found: Watched) -> list[watched.Query]:
    """Repeat the queries without series for their legends; return those that still have none."""
    for query in _QUERIES:
        if query in found.answers:
            continue
        rows = found.prometheus.query(found.expression(query))
        if rows and query.legend <= {label for row in rows for label in row["metric"]}:
            found.answers[query] = rows
    return [query for query in _QUERIES if query not in found.answers]


def _expressions() -> list[Any]:
    rules = [(rule["alert"], rule["expr"]) for rule in watched.rules()]
    shown = [(f"{query.board}: {query.panel}", query.expression) for query in _QUERIES]
    chosen = [(path.stem, watched.variable(path)[0]) for path in watched.BOARDS]
    return [pytest.param(expression, id=name) for name, expression in (*rules, *shown, *chosen)]


def test_every_query_of_a_panel_returns_series_with_the_labels_of_its_legend(seen: Watched) -> None:
    assert not _empty(seen)


@pytest.mark.parametrize("expression", _expressions())
def test_what_is_named_is_exposed(seen: Watched, expression: str) -> None:
    found = named(expression)
    known = ALWAYS | found.made
    for selector in found.selectors:
        if selector.metric == "up":
            continue
        described = family(selector.metric)
        assert described in seen.families
        if described in _OF_FAULTS and selector.metric not in seen.series:
            labels = set(_OF_FAULTS[described]._labelnames)
            assert {label for label, _, _ in selector.matchers} <= labels | ALWAYS
        else:
            rows = seen.series[selector.metric]
            labels = {label for row in rows for label in row}
            for label, operator, value in selector.matchers:
                assert label in labels
                if operator == "=" and label not in ALWAYS:
                    assert value in {row.get(label) for row in rows}
        known |= labels
    assert found.labels <= known


@pytest.mark.parametrize("rule", watched.rules(), ids=lambda rule: rule["alert"])
def test_texts_of_alerts_name_labels_that_are_there(seen: Watched, rule: dict[str, Any]) -> None:
    found = named(rule["expr"])
    known = set(ALWAYS | found.made)
    for selector in found.selectors:
        known |= {label for row in seen.series.get(selector.metric, []) for label in row}
        faults = _OF_FAULTS.get(family(selector.metric))
        known |= set(faults._labelnames) if faults else set()
    used = re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values()))
    assert set(used) <= known


def test_a_plan_that_foresees_a_blockage_gives_nothing_on_the_return_link(seen: Watched) -> None:
    [rule] = [
        one for one in watched.rules() if one["alert"] == "UnderpassLinkDownLongerThanForeseen"
    ]
    assert f"{_PLANNED} > 0" in rule["expr"]
    assert seen.least(_PLANNED) == 0
    [most] = seen.prometheus.query(f"max(max_over_time({_PLANNED}[10m]))")
    assert float(most["value"][1]) > 0


def test_prometheus_evaluates_every_rule(seen: Watched) -> None:
    """A failure to match series one to one shows only with real series."""
    groups = seen.prometheus.ask("rules")["groups"]
    states = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert set(states) == {rule["alert"] for rule in watched.rules()}
    assert set(states.values()) == {"ok"}


def test_nothing_fires_while_all_is_well(seen: Watched) -> None:
    firing = seen.prometheus.query('ALERTS{alertstate="firing"}')
    assert [one["metric"]["alertname"] for one in firing] == []


def test_nodes_are_scraped_with_a_token_for_metrics_alone(seen: Watched) -> None:
    up = {
        one["metric"]["instance"]: one["value"][1]
        for one in seen.prometheus.query("max_over_time(up[10m])")
    }
    assert up == {HUB: "1", TERMINAL: "1", _SERVICE: "1"}
