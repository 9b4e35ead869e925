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
        self.audit_pruned = Counter(
            "underpass_control_audit_entries_pruned",
            "Entries of the log of changes deleted for their age",
            registry=self.registry,
        )
        self.tiles_pruned = Counter(
            "underpass_control_map_tiles_pruned",
            "Vector tiles deleted that no map has any more",
            registry=self.registry,
        )
        self.alerts_firing = Gauge(
            "underpass_control_alerts_firing",
            "Alerts that fire, as of the last look",
            registry=self.registry,
        )
        self.alerts_fired = Counter(
            "underpass_control_alerts_fired",
            "Alerts that this process was the first to find",
            registry=self.registry,
        )
        self.alert_messages = Counter(
            "underpass_control_alert_messages",
            "Messages of alerts: sent, failed for now, given up, or without room",
            ("outcome",),
            registry=self.registry,
        )
        self.alerts_pruned = Counter(
            "underpass_control_alerts_pruned",
            "Alerts deleted some time after they were resolved",
            registry=self.registry,
        )
        self.rollouts_stopped = Counter(
            "underpass_control_rollouts_stopped",
            "Rollouts that have stopped by themselves, since terminals did not take the change",
            registry=self.registry,
        )
        self.rollouts_pruned = Counter(
            "underpass_control_rollouts_pruned",
            "Rollouts deleted some time after their end",
            registry=self.registry,
        )
        self.enrolments_pruned = Counter(
            "underpass_control_enrolments_pruned",
            "Enrolments deleted some time after they expired",
            registry=self.registry,
        )
        self.interventions_pruned = Counter(
            "underpass_control_interventions_pruned",
            "Interventions of operators deleted some time after their end",
            registry=self.registry,
        )
        self.sessions_pruned = Counter(
            "underpass_control_sessions_pruned",
            "Sessions of users deleted after their end",
            registry=self.registry,
        )
        self.sign_ins = Counter(
            "underpass_control_sign_ins",
            "Tries to sign in, by password or provider: accepted, failed, or refused as too many",
            ("outcome",),
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
        self.reports_elsewhere = Counter(
            "underpass_control_reports_elsewhere",
            "Links that gateways have reported to terminals that are at other gateways",
            registry=self.registry,
        )
        self.capacities_passed_over = Counter(
            "underpass_control_capacities_passed_over",
            "Measured capacities in reports that no beam can have",
            registry=self.registry,
        )
        self.blockages = Counter(
            "underpass_control_blockages",
            "Observed blockages that are over, by whether they had been predicted",
            ("link", "predicted"),
            registry=self.registry,
        )
        self.blockages_pruned = Counter(
            "underpass_control_blockages_pruned",
            "Blockages and announcements deleted for their age",
            registry=self.registry,
        )
        self.drives_pruned = Counter(
            "underpass_control_drives_pruned",
            "Remembered drives deleted for their age",
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
        of_link = ("beam", "link")
        self.terminals_faded = Gauge(
            "underpass_control_terminals_faded",
            "Terminals that are planned for with an efficiency below 1 that their nodes measured",
            of_link,
            registry=self.registry,
        )
        self.least_efficiency = Gauge(
            "underpass_control_least_efficiency",
            "The least of these efficiencies; 1 where there is none",
            of_link,
            registry=self.registry,
        )
        self.settled_until = Gauge(
            "underpass_control_settled_until_timestamp_seconds",
            "Up to when a link is settled, since the Unix epoch",
            of_link,
            registry=self.registry,
        )
        self.settlement_lag = Gauge(
            "underpass_control_settlement_lag_seconds",
            "How long ago that is",
            of_link,
            registry=self.registry,
        )
        self.settlement_presumed = Counter(
            "underpass_control_settlement_presumed",
            "Terminals' periods settled without the report that was waited for",
            of_link,
            registry=self.registry,
        )
        self.ledger_owed = Gauge(
            "underpass_control_ledger_owed_bytes",
            "What terminals are owed together, in capacity",
            of_link,
            registry=self.registry,
        )
        self.ledger_imbalance = Gauge(
            "underpass_control_ledger_imbalance_bytes",
            "The sum of all balances: anything but 0 is a fault",
            of_link,
            registry=self.registry,
        )
        self.ledger_entries = Counter(
            "underpass_control_ledger_entries",
            "Entries made while settling: settled, or the rule by which they forgive",
            (*of_link, "rule"),
            registry=self.registry,
        )
        self.ledger_faults = Counter(
            "underpass_control_ledger_faults",
            "Times that the ledger could not be used: run `underpass-control ledger check`",
            of_link,
            registry=self.registry,
        )
        self.usage_pruned = Counter(
            "underpass_control_usage_pruned",
            "Rows of usage deleted for their age",
            registry=self.registry,
        )
        self.clock_offset = Gauge(
            "underpass_control_clock_offset_seconds",
            "How far the database's clock, which plans and leases go by, is ahead of the host's",
            registry=self.registry,
        )
        self.plan_streams = Gauge(
            "underpass_control_plan_streams",
            "Open streams of plans to gateways",
            registry=self.registry,
        )
        self.plans = Counter(
            "underpass_control_plans",
            "Plans stored by this process, by link and why",
            ("link", "reason"),
            registry=self.registry,
        )
        self.acknowledgements_pruned = Counter(
            "underpass_control_acknowledgements_pruned",
            "Acknowledgements of old plans deleted",
            registry=self.registry,
        )
        self.plans_pruned = Counter(
            "underpass_control_plans_pruned",
            "Plans deleted for their age",
            registry=self.registry,
        )
        self.ledger_pruned = Counter(
            "underpass_control_ledger_pruned",
            "Rows of the ledger deleted for their age; balances are unchanged",
            registry=self.registry,
        )
        self.planning_seconds = Histogram(
            "underpass_control_planning_seconds",
            "Time to work out a plan, without storing it",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
            registry=self.registry,
        )
        self.report_to_plan_seconds = Histogram(
            "underpass_control_report_to_plan_seconds",
            "Time from a report that makes a plan due to the plan being stored",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5),
            registry=self.registry,
        )
        self.positions_to_predictions_seconds = Histogram(
            "underpass_control_positions_to_predictions_seconds",
            "Time from stored positions, or other news, to what is predicted by them",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 20),
            registry=self.registry,
        )
        self.positions_passed_over = Counter(
            "underpass_control_positions_passed_over",
            "Positions that were stored and not predicted with: late, and others were newer",
            registry=self.registry,
        )
        self.planning_failures = Counter(
            "underpass_control_planning_failures",
            "Plans that could not be made or stored, by why",
            ("why",),
            registry=self.registry,
        )
        self.plan_version = Gauge(
            "underpass_control_plan_version",
            "Version of the newest plan of each link that this process plans",
            ("beam", "link"),
            registry=self.registry,
        )
        self.plan_ends = Gauge(
            "underpass_control_plan_end_timestamp_seconds",
            "When the newest plan of each link that this process plans ends, Unix time",
            ("beam", "link"),
            registry=self.registry,
        )
        self.plan_tolerance = Gauge(
            "underpass_control_plan_tolerance",
            "By which part rates of the newest plan may be lower, for it to fit into a document",
            ("beam", "link"),
            registry=self.registry,
        )
        self.opensand_connected = Gauge(
            "underpass_control_opensand_connected",
            "Whether the NCC of a beam that this process plans can be told",
            ("beam",),
            registry=self.registry,
        )
        self.opensand_requests = Counter(
            "underpass_control_opensand_requests",
            "Requests to the NCC, those told again included",
            ("beam",),
            registry=self.registry,
        )
        self.opensand_rounding_bps = Gauge(
            "underpass_control_opensand_rounding_bps",
            "What the terminals are given beyond the plan for whole kbit/s, in all, bit/s",
            ("beam",),
            registry=self.registry,
        )
        self.leases = Gauge(
            "underpass_control_leases_held",
            "Beams that this process plans",
            registry=self.registry,
        )
        self.signalling_delay_seconds = Gauge(
            "underpass_control_signalling_delay_seconds",
            "How far ahead plans start, as nodes have acknowledged earlier ones",
            ("beam", "link"),
            registry=self.registry,
        )
