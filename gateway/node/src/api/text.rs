//! The status as `underpass status` prints it: aligned tables for people.

mod table;

use std::fmt;

use ipnet::IpNet;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use underpass_edge::classify::RuleCount;

use super::control::{ContactView, ControlView};
use super::edge::{EdgeSwitches, SwitchView};
use super::holds::HoldView;
use super::migrations::MigrationView;
use super::plans::PlansView;
use super::view::{BpsecView, PathView, SessionView, Status};
use crate::holds::Held;
use crate::positions::{FixView, PositionView, SourceState};

use table::Table;
pub use table::{counted, rate, size, span};

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {}, version {}, up {}, start {}",
            self.node,
            self.role,
            self.version,
            span(self.uptime_s),
            self.incarnation
        )?;
        for line in &self.congestion_controls {
            writeln!(f, "congestion control {line}")?;
        }
        if let Some(cdni) = &self.cdni {
            writeln!(
                f,
                "sizes of objects: {}, {} known, {} not told, {} too early{}",
                counted(cdni.documents as u64, "document"),
                cdni.known,
                cdni.untold,
                cdni.awaited,
                cdni.error
                    .as_ref()
                    .map_or(String::new(), |error| format!("; {error}"))
            )?;
        }
        if let Some(mptcp) = &self.mptcp {
            mptcp.fmt(f)?;
        }
        writeln!(f, "confinement: {}", self.confinement)?;
        writeln!(f, "\n{}", paths(&self.paths))?;
        if self.paths.iter().any(|path| path.hop.meter.is_some()) {
            writeln!(f, "{}", meters(&self.paths))?;
        }
        let mut sessions = sessions(&self.paths);
        if sessions.is_empty() {
            sessions.row(["none"]);
        }
        writeln!(f, "{sessions}\n{}", self.traffic())?;
        if !self.migrations.is_empty() {
            writeln!(f, "{}", migrations(&self.migrations))?;
        }
        if !self.holds.is_empty() {
            writeln!(f, "{}", holds(&self.holds))?;
        }
        if !self.edge.rules.is_empty() {
            writeln!(f, "{}", rules(&self.edge.rules))?;
        }
        if !self.plans.plans.is_empty() {
            writeln!(f, "{}", plans(&self.plans))?;
        }
        if let Some(contact_plan) = &self.contact_plan {
            contact_plan.fmt(f)?;
        }
        self.store(f)?;
        if self.bpsec.rules > 0 {
            writeln!(f, "{}", self.bpsec)?;
        }
        if let Some(position) = &self.position {
            writeln!(f, "Position: {position}")?;
        }
        self.edge.fmt(f)?;
        match &self.control {
            Some(control) => control.fmt(f),
            None => Ok(()),
        }
    }
}

impl fmt::Display for BpsecView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bundle security: {}", counted(self.rules as u64, "rule"))?;
        for (operation, counts) in [
            ("integrity", &self.integrity),
            ("confidentiality", &self.confidentiality),
        ] {
            let counts = counts.iter().filter(|(_, count)| **count > 0);
            let counts: Vec<_> = counts.map(|(name, n)| format!("{n} {name}")).collect();
            if !counts.is_empty() {
                write!(f, "; {operation}: {}", counts.join(", "))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ControlView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = |contact: &ContactView| match &contact.error {
            Some(error) => format!("{} ({error})", contact.state),
            None => contact.state.clone(),
        };
        writeln!(
            f,
            "Control service {}: reports {}, {} wait; plans {}",
            self.url,
            state(&self.reports),
            self.waiting,
            state(&self.plans)
        )
    }
}

impl fmt::Display for PositionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fix {
            Some(FixView { position, age_s }) => {
                write!(f, "{:.5}, {:.5}", position.latitude, position.longitude)?;
                if let Some(speed_mps) = position.speed_mps {
                    write!(f, ", {speed_mps:.1} m/s")?;
                }
                write!(f, ", {age_s:.0} s ago")?;
            }
            None => f.write_str("none")?,
        }
        let state = match self.source.state {
            SourceState::Connecting => "not reached",
            SourceState::Searching => "without fix",
            SourceState::Fix => "with fix",
        };
        write!(f, "; {} {} {state}", self.source.kind, self.source.from)?;
        match &self.source.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for EdgeSwitches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Proxies: {}", self.proxies)?;
        match &self.interception {
            Some(interception) => writeln!(f, "Interception: {interception}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SwitchView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.enabled {
            return f.write_str("off");
        }
        f.write_str("on")?;
        let texts = |nets: &[IpNet]| nets.iter().map(IpNet::to_string).collect();
        let lists: [(&str, Vec<String>); 3] = [
            ("clients", texts(&self.off_clients)),
            ("destinations", texts(&self.off_networks)),
            ("ports", self.off_ports.clone()),
        ];
        for (what, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
            write!(f, "; off for {what} {}", list.join(", "))?;
        }
        Ok(())
    }
}

fn paths(paths: &[PathView]) -> Table {
    let mut table = Table::new([
        "PATH",
        "TO",
        "STATE",
        ">RATE",
        ">CARRIES",
        ">ACKS, PLAIN IP",
    ]);
    for path in paths {
        let hop = &path.hop;
        let state = match (hop.up, hop.blocked) {
            (true, true) => "blocked",
            (false, true) => "blocked, down",
            (true, false) => "up",
            (false, false) => "down",
        };
        let state = match (hop.link.blocked_by, hop.link.blocked_s) {
            (Some(source), Some(blocked_s)) => {
                format!("{state} ({}, {})", source.name(), span(blocked_s))
            }
            _ => state.to_owned(),
        };
        let state = match &hop.on_demand {
            Some(of) if of.dials && !of.up => "released".to_owned(),
            Some(of) if of.dials && !hop.up => format!("{state}, coming up"),
            _ => state,
        };
        let state = match hop.direction.as_str() {
            "receive" => format!("{state}, sends nothing"),
            _ => state,
        };
        let state = match hop.without_items {
            true => format!("{state}, without extension items"),
            false => state,
        };
        table.row([
            hop.name.clone(),
            format!("ipn:{}.0", hop.neighbour),
            state,
            hop.rate_bps.map_or("unlimited".to_owned(), rate),
            hop.measured.capacity_bps.map_or("-".to_owned(), rate),
            rate(hop.subtracted_bps),
        ]);
    }
    table
}

fn meters(paths: &[PathView]) -> Table {
    let mut table = Table::new(["METERED PATH", "PERIOD", ">SPENT", ">BUDGET", "CARRIES"]);
    for path in paths {
        let Some(meter) = &path.hop.meter else {
            continue;
        };
        let carries = match (meter.exhausted, meter.beyond.is_empty()) {
            (false, _) => "all".to_owned(),
            (true, true) => "nothing".to_owned(),
            (true, false) => meter.beyond.join(", "),
        };
        table.row([
            path.hop.name.clone(),
            meter.period.clone(),
            size(meter.spent_bytes),
            meter.budget_bytes.map_or("none".to_owned(), size),
            carries,
        ]);
    }
    table
}

fn rules(rules: &[RuleCount]) -> Table {
    let mut table = Table::new(["RULE", "CLASS", ">MATCHED"]);
    for rule in rules {
        let matched = rule.matched.to_string();
        table.row([rule.name.clone(), rule.class.clone(), matched]);
    }
    table
}

/// What operators have set.
pub fn holds(holds: &[HoldView]) -> Table {
    let mut table = Table::new([">HELD", "WHAT", "SINCE", "BY", "IN FORCE"]);
    for view in holds {
        let limit = |rate_bps: &Option<u64>| rate_bps.map_or("unlimited".to_owned(), rate);
        let what = match &view.held {
            Held::Blocked { path } => format!("{path} blocked"),
            Held::Rate { path, rate_bps } => format!("{path} sends {}", limit(rate_bps)),
            Held::ReceiveRate { path, rate_bps } => {
                format!("{path} receives {}", limit(rate_bps))
            }
            Held::BeamRate { rate_bps } => format!("beam of {}", limit(rate_bps)),
            Held::BroughtUp { path, up: true } => format!("{path} up"),
            Held::BroughtUp { path, up: false } => format!("{path} released"),
            Held::Migration {
                class,
                neighbour,
                path,
            } => format!("{class} to ipn:{neighbour}.0 by {path}"),
        };
        let since = view.since.and_then(|since| since.format(&Rfc3339).ok());
        table.row([
            view.id.to_string(),
            what,
            since.unwrap_or("time unknown".to_owned()),
            view.by.clone(),
            if view.in_force { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}

fn migrations(migrations: &[MigrationView]) -> Table {
    let mut table = Table::new([
        "CLASS",
        "TO",
        "GOES BY",
        "SINCE",
        "MOVED FOR",
        ">SENDS",
        ">WAITS",
        ">STREAMS",
        ">MOVES",
    ]);
    for view in migrations {
        let reason = match (&view.reason, view.held) {
            (Some(reason), true) => format!("{reason}, held"),
            (Some(reason), false) => reason.clone(),
            (None, true) => "held".to_owned(),
            (None, false) => "-".to_owned(),
        };
        table.row([
            view.class.clone(),
            format!("ipn:{}.0", view.neighbour),
            view.path.clone(),
            span(view.since_s),
            reason,
            rate(view.sends_bps),
            size(view.backlog_bytes),
            view.backlogged_streams.to_string(),
            view.moves.values().sum::<u64>().to_string(),
        ]);
    }
    table
}

fn plans(known: &PlansView) -> Table {
    let mut table = Table::new([
        "PLAN",
        "LINK",
        ">VERSION",
        "STATE",
        ">TERMINAL",
        "HAS",
        ">PLANNED",
        ">GUARANTEED",
        "UNTIL",
        "REMARK",
    ]);
    let bps = |bps: Option<u64>| bps.map_or("-".to_owned(), rate);
    let time = |time: Option<OffsetDateTime>| {
        time.and_then(|time| time.format(&Rfc3339).ok())
            .unwrap_or_else(|| "-".to_owned())
    };
    for plan in &known.plans {
        for terminal in &plan.terminals {
            let remark = match (terminal.by_operator, terminal.waits) {
                (true, _) => "rate set by an operator",
                (_, Some(true)) => "waits to be told",
                (_, Some(false)) => "told",
                _ => "",
            };
            table.row([
                plan.beam.clone(),
                plan.link.clone(),
                plan.version.to_string(),
                plan.state.clone(),
                terminal.terminal.to_string(),
                terminal.state.clone().unwrap_or_else(|| "-".to_owned()),
                bps(terminal.planned_bps),
                bps(terminal.guaranteed_bps),
                time(terminal.until),
                remark.to_owned(),
            ]);
        }
    }
    table
}

fn sessions(paths: &[PathView]) -> Table {
    let mut table = Table::new([
        "SESSION",
        "PATH",
        "CLASS",
        "PART",
        "LAYER",
        "TLS",
        "CONTROL",
        ">RTT",
        ">LEAST",
        ">DELIVERY",
        ">WINDOW",
        ">IN FLIGHT",
        ">SENT",
        ">AGAIN",
        ">RECEIVED",
    ]);
    for path in paths {
        for session in &path.sessions {
            table.row(session_row(&path.hop.name, session));
        }
    }
    table
}

fn session_row(path: &str, session: &SessionView) -> [String; 15] {
    let part = match (session.carrying, session.receives_only) {
        (true, _) => "carries",
        (false, true) => "receives",
        (false, false) => "stands by",
    };
    let class = session.class.as_deref().unwrap_or("all");
    [
        session.id.to_string(),
        path.to_owned(),
        class.to_owned(),
        part.to_owned(),
        match session.subflows {
            None => session.convergence_layer.clone(),
            Some(0) => format!("{}, no MPTCP", session.convergence_layer),
            Some(count) => {
                let subflows = counted(count.into(), "subflow");
                format!("{}, {subflows}", session.convergence_layer)
            }
        },
        if session.tls { "yes" } else { "no" }.to_owned(),
        session.congestion_control.clone(),
        format!("{:.0} ms", session.rtt_ms),
        format!("{:.0} ms", session.min_rtt_ms),
        rate(session.delivery_rate_bps),
        size(session.cwnd_bytes),
        size(session.in_flight_bytes),
        size(session.sent_bytes),
        size(session.retransmitted_bytes),
        size(session.received_bytes),
    ]
}

impl Status {
    fn store(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let custody = &self.custody;
        writeln!(
            f,
            "Store: {}, {} of {}",
            counted(custody.bundles, "bundle"),
            size(custody.used_bytes),
            size(custody.quota_bytes)
        )?;
        let Some(disk) = &custody.disk else {
            return Ok(());
        };
        writeln!(
            f,
            "On disk: {} in {}",
            size(disk.log_bytes),
            counted(disk.segments, "file")
        )?;
        if let Some(why) = &disk.stalled {
            writeln!(f, "The disk cannot be written, sources are slowed: {why}")?;
        }
        if disk.failed_segments > 0 {
            let files = counted(disk.failed_segments, "file");
            writeln!(f, "The disk could not read {files}")?;
        }
        Ok(())
    }

    fn traffic(&self) -> Table {
        let mut table = Table::new([
            "CLASS",
            ">STREAMS OPEN",
            ">HALF-CLOSED",
            ">DRAINING",
            ">SENT",
            ">RECEIVED",
            ">WAITING",
            ">BUNDLES HELD",
            ">PAYLOAD",
            ">OLDEST",
        ]);
        for class in &self.classes {
            let streams = self.streams.get(class).copied().unwrap_or_default();
            let held = self.custody.classes.get(class).copied().unwrap_or_default();
            table.row([
                class.clone(),
                streams.open.to_string(),
                streams.half_closed.to_string(),
                streams.draining.to_string(),
                size(streams.sent_bytes),
                size(streams.received_bytes),
                size(streams.backlog_bytes),
                held.bundles.to_string(),
                size(held.bytes),
                format!("{:.1} s", held.oldest_s),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_position_is_told_with_what_is_wrong_with_it() {
        let told = |view: Value| {
            serde_json::from_value::<PositionView>(view)
                .unwrap()
                .to_string()
        };
        let lost = told(json!({
            "source": {
                "kind": "gpsd",
                "from": "127.0.0.1:2947",
                "state": "connecting",
                "error": "Connection refused",
            },
            "fix": null,
        }));
        assert_eq!(
            lost,
            "none; gpsd 127.0.0.1:2947 not reached: Connection refused"
        );
        let found = told(json!({
            "source": {"kind": "nmea", "from": "/dev/ttyUSB0", "state": "fix", "error": null},
            "fix": {
                "longitude": 8.6821,
                "latitude": 50.1109,
                "speed_mps": 22.25,
                "synchronised": false,
                "age_s": 0.3,
            },
        }));
        assert_eq!(
            found,
            "50.11090, 8.68210, 22.2 m/s, 0 s ago; nmea /dev/ttyUSB0 with fix"
        );
    }
}
