"""Prometheus metrics, in a registry of the service's own."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# All names begin with it.
_NAMESPACE = "underpass_control"


class Metrics:
    """What is counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace=_NAMESPACE, registry=self.registry)
        gauge = partial(Gauge, namespace=_NAMESPACE, registry=self.registry)
        histogram = partial(Histogram, namespace=_NAMESPACE, registry=self.registry)
        self.requests = counter(
            "http_requests",
            "Requests answered, by endpoint and status",
            ("method", "endpoint", "status"),
        )
        self.request_seconds = histogram(
            "http_request_seconds",
            "Time from a request's head to its answer's, streams left out",
            ("method", "endpoint"),
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
        )
        self.positions = counter(
            "position_reports", "Position reports taken in, those that came again included"
        )
        self.positions_waiting = gauge(
            "position_reports_waiting", "Position reports that wait to be stored"
        )
        self.positions_pruned = counter(
            "position_reports_pruned", "Position reports deleted for their age"
        )
        self.audit_pruned = counter(
            "audit_entries_pruned", "Entries of the log of changes deleted for their age"
        )
        self.tiles_pruned = counter(
            "map_tiles_pruned", "Vector tiles deleted that no map has any more"
        )
        self.alerts_firing = gauge("alerts_firing", "Alerts that fire, as of the last look")
        self.alerts_fired = counter(
            "alerts_fired", "Alerts that this process was the first to find"
        )
        self.alert_messages = counter(
            "alert_messages",
            "Messages of alerts: sent, failed for now, given up, or without room",
            ("outcome",),
        )
        self.alerts_pruned = counter(
            "alerts_pruned", "Alerts deleted some time after they were resolved"
        )
        self.rollouts_stopped = counter(
            "rollouts_stopped",
            "Rollouts that have stopped by themselves, since terminals did not take the change",
        )
        self.rollouts_pruned = counter(
            "rollouts_pruned", "Rollouts deleted some time after their end"
        )
        self.enrolments_pruned = counter(
            "enrolments_pruned", "Enrolments deleted some time after they expired"
        )
        self.interventions_pruned = counter(
            "interventions_pruned", "Interventions of operators deleted some time after their end"
        )
        self.sessions_pruned = counter(
            "sessions_pruned", "Sessions of users deleted after their end"
        )
        self.certificate_expiry = gauge(
            "certificate_expiry_timestamp_seconds",
            "When a certificate that the service goes by ends, since the Unix epoch",
            ("certificate",),
        )
        self.sign_ins = counter(
            "sign_ins",
            "Tries to sign in, by password or provider: accepted, failed, or refused as too many",
            ("outcome",),
        )
        self.reports = counter(
            "reports",
            "Reports that gateways have posted, those that came again included",
            ("kind",),
        )
        self.reports_refused = counter(
            "reports_refused", "Reports that were refused, each for a reason that was told"
        )
        self.reports_of_strangers = counter(
            "reports_of_strangers",
            "Links that gateways have reported to terminals that are not known",
        )
        self.reports_elsewhere = counter(
            "reports_elsewhere",
            "Links that gateways have reported to terminals that are at other gateways",
        )
        self.capacities_passed_over = counter(
            "capacities_passed_over", "Measured capacities in reports that no beam can have"
        )
        self.blockages = counter(
            "blockages",
            "Observed blockages that are over, by whether they had been predicted",
            ("link", "predicted"),
        )
        self.blockages_pruned = counter(
            "blockages_pruned", "Blockages and announcements deleted for their age"
        )
        self.drives_pruned = counter("drives_pruned", "Remembered drives deleted for their age")
        self.passages_pruned = counter(
            "passages_pruned", "Terminals' counts at obstructions deleted for their age"
        )
        self.places_pruned = counter(
            "places_pruned",
            "Learned places whose counts were halved, or that were deleted, for their age",
        )
        # The target is a median of 2 s, 30 s ahead.
        errors_s = (0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)
        self.entry_error = histogram(
            "blockage_entry_error_seconds",
            "How far predicted entries were from observed ones",
            buckets=errors_s,
        )
        self.exit_error = histogram(
            "blockage_exit_error_seconds",
            "How far predicted exits were from observed ones",
            buckets=errors_s,
        )
        self.followers = gauge("event_followers", "Open event streams")
        self.followers_cut = counter("event_followers_cut", "Event streams that were ended here")
        of_link = ("beam", "link")
        self.terminals_faded = gauge(
            "terminals_faded",
            "Terminals that are planned for with an efficiency below 1 that their nodes measured",
            of_link,
        )
        self.least_efficiency = gauge(
            "least_efficiency", "The least of these efficiencies; 1 where there is none", of_link
        )
        self.settled_until = gauge(
            "settled_until_timestamp_seconds",
            "Up to when a link is settled, since the Unix epoch",
            of_link,
        )
        self.settlement_lag = gauge("settlement_lag_seconds", "How long ago that is", of_link)
        self.settlement_presumed = counter(
            "settlement_presumed",
            "Terminals' periods settled without the report that was waited for",
            of_link,
        )
        self.ledger_owed = gauge(
            "ledger_owed_bytes", "What terminals are owed together, in capacity", of_link
        )
        self.ledger_imbalance = gauge(
            "ledger_imbalance_bytes", "The sum of all balances: anything but 0 is a fault", of_link
        )
        self.ledger_entries = counter(
            "ledger_entries",
            "Entries made while settling: settled, or the rule by which they forgive",
            (*of_link, "rule"),
        )
        self.ledger_faults = counter(
            "ledger_faults",
            "Times that the ledger could not be used: run `underpass-control ledger check`",
            of_link,
        )
        self.usage_pruned = counter("usage_pruned", "Rows of usage deleted for their age")
        self.clock_offset = gauge(
            "clock_offset_seconds",
            "How far the database's clock, which plans and leases go by, is ahead of the host's",
        )
        self.plan_streams = gauge("plan_streams", "Open streams of plans to gateways")
        self.plans = counter(
            "plans", "Plans stored by this process, by link and why", ("link", "reason")
        )
        self.plans_late = counter(
            "plans_late",
            "How often a plan took longer than expected, and was given a later start, or up",
            ("link",),
        )
        self.acknowledgements_pruned = counter(
            "acknowledgements_pruned", "Acknowledgements of old plans deleted"
        )
        self.plans_pruned = counter("plans_pruned", "Plans deleted for their age")
        self.ledger_pruned = counter(
            "ledger_pruned", "Rows of the ledger deleted for their age; balances are unchanged"
        )
        self.planning_seconds = histogram(
            "planning_seconds",
            "Time to work out a plan, without storing it",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
        )
        self.report_to_plan_seconds = histogram(
            "report_to_plan_seconds",
            "Time from a report that makes a plan due to the plan being stored",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5),
        )
        self.positions_to_predictions_seconds = histogram(
            "positions_to_predictions_seconds",
            "Time from stored positions, or other news, to what is predicted by them",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 20),
        )
        self.positions_passed_over = counter(
            "positions_passed_over",
            "Positions that were stored and not predicted with: late, and others were newer",
        )
        self.terminals_double = counter(
            "terminals_double",
            "How often two vehicles seemed to report under the number of one terminal",
        )
        self.planning_failures = counter(
            "planning_failures",
            "Plans that could not be made, stored, or sent to a gateway, by why",
            ("why",),
        )
        self.plan_version = gauge(
            "plan_version",
            "Version of the newest plan of each link that this process plans",
            ("beam", "link"),
        )
        self.plan_ends = gauge(
            "plan_end_timestamp_seconds",
            "When the newest plan of each link that this process plans ends, Unix time",
            ("beam", "link"),
        )
        self.plan_tolerance = gauge(
            "plan_tolerance",
            "By which part rates of the newest plan may be lower, for it to fit into a document",
            ("beam", "link"),
        )
        self.opensand_connected = gauge(
            "opensand_connected",
            "Whether the NCC of a beam that this process plans can be told",
            ("beam",),
        )
        self.opensand_requests = counter(
            "opensand_requests", "Requests to the NCC, those told again included", ("beam",)
        )
        self.opensand_rounding_bps = gauge(
            "opensand_rounding_bps",
            "What the terminals are given beyond the plan for whole kbit/s, in all, bit/s",
            ("beam",),
        )
        self.leases = gauge("leases_held", "Beams that this process plans")
        self.signalling_delay_seconds = gauge(
            "signalling_delay_seconds",
            "How far ahead plans start: what making them and their way to the nodes take",
            ("beam", "link"),
        )
