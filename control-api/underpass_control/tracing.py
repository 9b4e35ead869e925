"""Traces of what the service does for exchanges (OpenTelemetry); off unless a collector is named.

A hub's post of reports may name the trace of an exchange that its terminal's edge has sampled
(`docs/operation.md`, *Traces*). The request's span is then a child of the hub's, the plan that
follows from the reports a child of the request's, and each stream that the plan is sent on a child
of the plan's. Other requests are sampled by a ratio, each as a trace of its own.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from underpass_control.roles import Role

# The SDK takes a second to import: a service that traces nothing does without.
if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, Span, SpanContext, Tracer

_LOG = structlog.get_logger()

# The roles whose trace headers are trusted; a gateway's are of exchanges that it authenticated.
_TRUSTED = frozenset({Role.GATEWAY, Role.OPERATOR, Role.ADMINISTRATOR})
# Spans that wait for the collector at most.
_QUEUE = 2_048
_BATCH = 512
_EVERY_MS = 1_000
_TIMEOUT_S = 10
# How long the service's end waits for the collector.
_LAST_S = 3.0
# The most terminals whose reports wait for a plan, and for how long a report counts as its cause.
_MOST_REPORTS = 1_024
_CAUSE_FOR_S = 60.0
# Links of one span.
_MOST_LINKS = 32
# Plans whose spans are remembered for the streams that they go out on.
_MOST_PLANS = 1_024


@dataclass(frozen=True)
class TracesSettings:
    """Where traces go, and how many are made."""

    # The collector, by OTLP over HTTP; traces are posted to /v1/traces behind it.
    url: str
    # Certificates of the authorities that the collector's is judged by; None: the system's.
    ca_file: str | None = None
    # Part of the requests and plans that begin a trace of their own.
    ratio: float = 0.01
    # Traces that are gone along with or begun, in a second; as many at once.
    most_per_s: float = 10.0


class Allowance:
    """Allows a number per second, and as many at once."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Also take the clock, in seconds."""
        self._per_s = per_s
        self._most = max(per_s, 1.0)
        self._left = self._most
        self._clock = clock
        self._at = clock()

    def admits(self) -> bool:
        """Return whether one more is allowed, and count it."""
        now = self._clock()
        self._left = min(self._left + (now - self._at) * self._per_s, self._most)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Traces:
    """Makes spans, and has them sent by a thread of its own; no call waits for the collector."""

    def __init__(self, settings: TracesSettings | None) -> None:
        self._settings = settings
        self._allowance = Allowance(0.0 if settings is None else settings.most_per_s)
        self._tracer: Tracer | None = None
        self._provider: TracerProvider | None = None
        # The newest post of each terminal's reports, and when it came.
        self._reports: OrderedDict[int, tuple[SpanContext, float]] = OrderedDict()
        self._plans: OrderedDict[tuple[str, str], tuple[int, SpanContext]] = OrderedDict()
        if settings is not None:
            self._provider = _provider(settings)
            self._tracer = self._provider.get_tracer("underpass-control")

    @contextmanager
    def request(
        self, method: str, path: str, role: Role | None, headers: Mapping[str, str]
    ) -> Iterator[Request | None]:
        """Trace a request to an endpoint, whose path has its parameters' names, if it is sampled.

        A caller's `traceparent` counts where the caller is trusted.
        """
        if self._tracer is None:
            yield None
            return
        parent = _parent(headers) if role in _TRUSTED else None
        if not self._samples(parent):
            yield None
            return
        with self._span(f"{method} {path}", parent, server=True) as span:
            span.set_attribute("http.request.method", method)
            span.set_attribute("http.route", path)
            yield Request(self, span)

    def reported(self, terminals: Collection[int], span: Span) -> None:
        """Remember the request that reports of these terminals came with."""
        now = time.monotonic()
        for terminal in terminals:
            self._reports[terminal] = (span.get_span_context(), now)
            self._reports.move_to_end(terminal)
        while len(self._reports) > _MOST_REPORTS:
            self._reports.popitem(last=False)

    def causes(self, terminals: Collection[int]) -> list[SpanContext]:
        """Return the causes of the plans made now, the newest first; each only once."""
        if not self._reports:
            return []
        since = time.monotonic() - _CAUSE_FOR_S
        found = [self._reports.pop(one) for one in list(self._reports) if one in terminals]
        found.sort(key=lambda one: one[1], reverse=True)
        contexts = {context.span_id: context for context, at in found if at >= since}
        return list(contexts.values())[: _MOST_LINKS + 1]

    @contextmanager
    def plan(self, beam: str, link: str, reason: str, causes: list[SpanContext]) -> Iterator[Plan]:
        """Trace the making of a plan: in the trace of its newest cause, linked with the others."""
        parent = causes[0] if causes else None
        # Causes were counted when they came.
        if self._tracer is None or (parent is None and not self._samples(None)):
            yield Plan(self, None, (beam, link))
            return
        with self._span("plan", parent, links=causes[1:]) as span:
            span.set_attribute("underpass.beam", beam)
            span.set_attribute("underpass.link", link)
            span.set_attribute("underpass.reason", reason)
            yield Plan(self, span, (beam, link))

    def stored(self, key: tuple[str, str], version: int, span: Span) -> None:
        """Remember the span of a plan, for the streams that it goes out on."""
        self._plans[key] = (version, span.get_span_context())
        self._plans.move_to_end(key)
        while len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)

    @contextmanager
    def push(self, beam: str, link: str, version: int, gateway: int) -> Iterator[None]:
        """Trace that a plan is sent to a gateway, if its making was traced."""
        known = self._plans.get((beam, link))
        if known is None or known[0] != version:
            yield
            return
        with self._span("push", known[1]) as span:
            span.set_attribute("underpass.beam", beam)
            span.set_attribute("underpass.link", link)
            span.set_attribute("underpass.plan", version)
            span.set_attribute("underpass.gateway", gateway)
            yield

    async def close(self) -> None:
        """Send what waits, if the collector takes it soon."""
        if self._provider is not None:
            # A collector that hangs must not keep the process from ending.
            last = threading.Thread(target=self._provider.shutdown, daemon=True)
            last.start()
            await asyncio.to_thread(last.join, _LAST_S)

    def _samples(self, parent: SpanContext | None) -> bool:
        assert self._settings is not None
        if parent is None:
            wanted = random.random() < self._settings.ratio
        else:
            wanted = parent.trace_flags.sampled
        return wanted and self._allowance.admits()

    @contextmanager
    def _span(
        self,
        name: str,
        parent: SpanContext | None,
        links: Collection[SpanContext] = (),
        *,
        server: bool = False,
    ) -> Iterator[Span]:
        from opentelemetry import trace
        from opentelemetry.context import Context

        assert self._tracer is not None
        within = Context()
        if parent is not None:
            within = trace.set_span_in_context(trace.NonRecordingSpan(parent), within)
        kind = trace.SpanKind.SERVER if server else trace.SpanKind.INTERNAL
        linked: list[Link] = [trace.Link(one) for one in links]
        span = self._tracer.start_span(name, within, kind, links=linked)
        try:
            yield span
        except Exception as error:
            # Its text may contain input of the caller.
            span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            span.end()


@dataclass(frozen=True)
class Request:
    """A request that is traced."""

    _traces: Traces
    _span: Span

    def reports_of(self, terminals: Collection[int]) -> None:
        """Say that reports of these terminals came with it."""
        self._span.set_attribute("underpass.terminals", len(terminals))
        self._traces.reported(terminals, self._span)

    def answered(self, status: int) -> None:
        """Say how it was answered."""
        self._span.set_attribute("http.response.status_code", status)


@dataclass(frozen=True)
class Plan:
    """A plan that is being made, traced or not."""

    _traces: Traces
    _span: Span | None
    _key: tuple[str, str]

    def stored(self, version: int) -> None:
        """Say that it is stored, and goes out."""
        if self._span is not None:
            self._span.set_attribute("underpass.plan", version)
            self._traces.stored(self._key, version, self._span)


def _parent(headers: Mapping[str, str]) -> SpanContext | None:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    # Only this header: `tracestate` may be long, and nothing here reads it.
    header = headers.get("traceparent")
    if header is None:
        return None
    within = TraceContextTextMapPropagator().extract({"traceparent": header})
    context = trace.get_current_span(within).get_span_context()
    return context if context.is_valid else None


def _provider(settings: TracesSettings) -> TracerProvider:
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    class Exporter(OTLPSpanExporter):
        """Tells the log once that the collector takes no spans, and once that it does again."""

        _is_failing = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(spans)
            is_failing = result is not SpanExportResult.SUCCESS
            if is_failing and not self._is_failing:
                _LOG.warning("the collector of traces takes no spans", url=settings.url)
            elif self._is_failing and not is_failing:
                _LOG.info("the collector of traces takes spans again", url=settings.url)
            self._is_failing = is_failing
            return result

    # It would log each try of each batch.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    session = requests.Session()
    # Proxies and credentials of the environment are not for the collector.
    session.trust_env = False
    exporter = Exporter(
        endpoint=settings.url.rstrip("/") + "/v1/traces",
        certificate_file=settings.ca_file,
        timeout=_TIMEOUT_S,
        session=session,
    )
    provider = TracerProvider(
        # Sampling is decided before a span begins.
        sampler=ALWAYS_ON,
        resource=Resource({"service.name": "underpass-control"}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=_QUEUE,
            schedule_delay_millis=_EVERY_MS,
            max_export_batch_size=_BATCH,
        )
    )
    return provider
