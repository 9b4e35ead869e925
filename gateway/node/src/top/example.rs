//! A terminal's status for tests: one path, two classes.

use serde_json::json;

use crate::api::Status;

/// A terminal with its link up, which carries nothing yet.
pub fn status() -> Status {
    let session = |id: u64, class: &str| {
        json!({
            "id": id, "class": class, "standby": false, "carrying": true,
            "remote": "192.0.2.1:4556", "tls": true, "convergence_layer": "tcpcl",
            "congestion_control": "hybla_dama", "rtt_ms": 612.0, "min_rtt_ms": 600.0,
            "delivery_rate_bps": 38_000_000, "cwnd_bytes": 3_000_000, "in_flight_bytes": 1_500_000,
            "sent_bytes": 0, "retransmitted_bytes": 0, "received_bytes": 0, "symbols_sent": 0,
            "repair_symbols_sent": 0, "asked_symbols_sent": 0, "symbols_recovered": 0,
        })
    };
    let streams = json!({
        "open": 3, "half_closed": 1, "draining": 0,
        "sent_bytes": 0, "received_bytes": 0, "backlog_bytes": 4_200,
    });
    let status = json!({
        "node": "ipn:10.0", "role": "terminal", "version": "0.1.0", "incarnation": 7,
        "uptime_s": 3_720.0,
        "paths": [{
            "name": "satellite", "neighbour": 1, "up": true, "blocked": false,
            "link": {
                "blocked_by": null, "blocked_s": null, "silence_s": 0.1, "probed": true,
                "planned": [], "plan_contradicted": false,
            },
            "rate_bps": 40_000_000, "follow_plan": true, "subtracted_bps": 0,
            "measured": {
                "capacity_bps": null, "reason": null, "base_rtt_ms": 600.0, "queue_ms": 3.0,
                "loss": 0.0,
            },
            "efficiency": null,
            "sessions": [session(1, "interactive"), session(2, "bulk")],
        }],
        "classes": ["interactive", "bulk"],
        "streams": {"interactive": streams},
        "plans": {"control_time": null, "clock_offset_ms": null, "plans": []},
        "custody": {
            "bundles": 2, "used_bytes": 90_000, "quota_bytes": 1_000_000, "durability": "memory",
            "disk": null,
            "classes": {"bulk": {
                "bundles": 2, "bytes": 80_000, "custody_bundles": 2, "custody_bytes": 80_000,
                "oldest_s": 1.5,
            }},
            "neighbours": [{
                "neighbour": 1, "bundles": 2, "used_bytes": 90_000,
                "guaranteed_bundles": 10, "guaranteed_bytes": 100_000,
            }],
        },
        "edge": {
            "proxies": {"enabled": true, "off_clients": [], "off_networks": [], "off_ports": []},
            "interception": null,
        },
        "control": null, "position": null, "congestion_controls": [],
    });
    serde_json::from_value(status).expect("the example is a status")
}

/// The same after `uptime_s`, when so much was sent and received.
pub fn with_traffic(uptime_s: f64, sent_bytes: u64, received_bytes: u64) -> Status {
    let mut status = status();
    status.uptime_s = uptime_s;
    let session = &mut status.paths[0].sessions[0];
    session.sent_bytes = sent_bytes;
    session.received_bytes = received_bytes;
    // The other one carries nothing.
    status.paths[0].sessions.truncate(1);
    for streams in status.streams.values_mut() {
        streams.sent_bytes = sent_bytes;
        streams.received_bytes = received_bytes;
    }
    status
}
