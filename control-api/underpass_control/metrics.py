"""Prometheus metrics, in a registry of the service's own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """What is counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "underpass_control_http_requests",
            "Requests answered, by endpoint and status",
            ("method", "endpoint", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "underpass_control_http_request_seconds",
            "Time from a request's head to its answer's, streams left out",
            ("method", "endpoint"),
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            registry=self.registry,
        )
        self.positions = Counter(
            "underpass_control_position_reports",
            "Position reports taken in, those that came again included",
            registry=self.registry,
        )
        self.positions_waiting = Gauge(
            "underpass_control_position_reports_waiting",
            "Position reports that wait to be stored",
            registry=self.registry,
        )
        self.positions_pruned = Counter(
            "underpass_control_position_reports_pruned",
            "Position reports deleted for their age",
            registry=self.registry,
        )
        self.reports = Counter(
            "underpass_control_reports",
            "Reports that gateways have posted, those that came again included",
            ("kind",),
            registry=self.registry,
        )
        self.reports_refused = Counter(
            "underpass_control_reports_refused",
            "Reports that were refused, each for a reason that was told",
            registry=self.registry,
        )
        self.reports_of_strangers = Counter(
            "underpass_control_reports_of_strangers",
            "Links that gateways have reported to terminals that are not known",
            registry=self.registry,
        )
        self.blockages = Counter(
            "underpass_control_blockages",
            "Observed blockages that are over, by whether they had been predicted",
            ("link", "predicted"),
            registry=self.registry,
        )
        # The target is a median of 2 s, 30 s ahead.
        errors_s = (0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)
        self.entry_error = Histogram(
            "underpass_control_blockage_entry_error_seconds",
            "How far predicted entries were from observed ones",
            buckets=errors_s,
            registry=self.registry,
        )
        self.exit_error = Histogram(
            "underpass_control_blockage_exit_error_seconds",
            "How far predicted exits were from observed ones",
            buckets=errors_s,
            registry=self.registry,
        )
        self.followers = Gauge(
            "underpass_control_event_followers", "Open event streams", registry=self.registry
        )
        self.followers_cut = Counter(
            "underpass_control_event_followers_cut",
            "Event streams that were ended here",
            registry=self.registry,
        )
