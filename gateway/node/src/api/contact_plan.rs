//! The contact plan, and the way to a node.

use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use underpass_bundle::wire::Eid;
use underpass_engine::{HopSnapshot, Source};
use underpass_routing::Contact;

use super::ApiState;
use super::counted;
use super::problem::{Path, Problem};
use crate::config::{NodePattern, RouteConfig, is_node_name};
use crate::run::contacts::PlanFigures;

#[derive(Debug, Serialize, Deserialize)]
pub struct ContactPlanView {
    pub file: String,
    #[serde(flatten)]
    pub figures: PlanFigures,
}

/// What decides where bundles of applications and other nodes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecidedBy {
    /// This node is the destination.
    ThisNode,
    /// A route to this very node.
    Route,
    /// The contact plan.
    ContactPlan,
    /// The node is a neighbour.
    Neighbour,
    /// A route to several nodes.
    RouteToSeveral,
    /// Nobody: its bundles are refused.
    Nobody,
}

/// The way to a node.
#[derive(Debug, Serialize, Deserialize)]
pub struct RouteView {
    /// The destination's node number; null for one of the dtn scheme.
    pub node: Option<u64>,
    /// The destination's node ID.
    pub node_id: String,
    /// Who decides.
    pub by: DecidedBy,
    /// Whether the contact plan names the node.
    pub in_plan: bool,
    /// The neighbour that bundles are forwarded to; null without a route.
    pub via: Option<u64>,
    /// The source that says that the link to that neighbour is blocked; null if it is not blocked,
    /// or if only one of several links is.
    pub blocked_by: Option<Source>,
    /// When a bundle that is ready now arrives; null without a planned route.
    #[serde(with = "time::serde::rfc3339::option")]
    pub arrival: Option<OffsetDateTime>,
    /// The contacts of the planned route, in order.
    pub contacts: Vec<RouteContactView>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RouteContactView {
    /// Who sends.
    pub from: u64,
    /// Who receives.
    pub to: u64,
    /// When the contact begins, or when the bytes that wait for it already have been sent.
    #[serde(with = "time::serde::rfc3339")]
    pub start: OffsetDateTime,
    /// It ends, or a blockage begins.
    #[serde(with = "time::serde::rfc3339")]
    pub end: OffsetDateTime,
    /// How fast, bytes per second.
    pub rate_bytes_per_s: u64,
    /// One-way light time, ms.
    pub owlt_ms: u64,
    /// Bytes that are sent before.
    pub booked_bytes: u64,
}

impl RouteContactView {
    /// Times after the year 9999 are shown as the end of that year.
    fn of(contact: &Contact) -> RouteContactView {
        RouteContactView {
            from: contact.from,
            to: contact.to,
            start: moment(contact.start_ms),
            end: moment(contact.end_ms),
            rate_bytes_per_s: contact.rate_bytes_per_s,
            owlt_ms: contact.owlt_ms,
            booked_bytes: contact.booked_bytes,
        }
    }
}

fn moment(ms: u64) -> OffsetDateTime {
    let nanoseconds = i128::from(ms) * 1_000_000;
    let last = time::PrimitiveDateTime::MAX.assume_utc();
    OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(last)
}

/// GET /v1/routes/{node}
pub async fn route(
    State(state): State<Arc<ApiState>>,
    Path(node): Path<String>,
) -> Result<Json<RouteView>, Problem> {
    // A name of digits only is a node number without its scheme.
    let name = match node.strip_prefix("dtn:") {
        Some(name) => name,
        None => match node.parse() {
            Ok(0) => return Err(Problem::invalid("node number 0 is no node's")),
            Ok(number) => return Ok(Json(state.route(number))),
            Err(_) => node.as_str(),
        },
    };
    match is_node_name(name) {
        true => Ok(Json(state.route_by_name(name))),
        false => Err(Problem::invalid(
            "a node is its number, or its name in the dtn scheme",
        )),
    }
}

impl ApiState {
    fn route(&self, node: u64) -> RouteView {
        let config = self.config.get();
        let own = node == config.node.number;
        let way = self.contacts.way_to(node);
        let via = self.shell.read_any(|engine| engine.next_hop(node, 0));
        let via = via.filter(|_| !own);
        let by = if own {
            DecidedBy::ThisNode
        } else if config.routes.iter().any(|route| route.node == Some(node)) {
            DecidedBy::Route
        } else if way.is_some() {
            DecidedBy::ContactPlan
        } else if config.neighbours().contains(&node) {
            DecidedBy::Neighbour
        } else if via.is_some() {
            DecidedBy::RouteToSeveral
        } else {
            DecidedBy::Nobody
        };
        let contacts = way.iter().flat_map(|way| &way.contacts);
        RouteView {
            node: Some(node),
            node_id: format!("ipn:{node}.0"),
            by,
            in_plan: self.contacts.names(node),
            via,
            blocked_by: self.who_blocks(via),
            arrival: way.as_ref().map(|way| moment(way.next.route.arrival_ms)),
            contacts: contacts.map(RouteContactView::of).collect(),
        }
    }

    /// The route to a node of the dtn scheme: only static routes lead there.
    fn route_by_name(&self, name: &str) -> RouteView {
        let config = self.config.get();
        let endpoint = Eid::with_dtn(&format!("//{name}/")).unwrap_or_default();
        let own = config.node.name.as_deref() == Some(name);
        let via = self
            .shell
            .read_any(|engine| engine.named_next_hop(&endpoint));
        let via = via.filter(|_| !own).map(|via| via.0);
        let exact = |route: &RouteConfig| matches!(&route.nodes, Some(NodePattern::Name(named)) if named == name);
        let by = match via {
            _ if own => DecidedBy::ThisNode,
            Some(_) if config.routes.iter().any(exact) => DecidedBy::Route,
            Some(_) => DecidedBy::RouteToSeveral,
            None => DecidedBy::Nobody,
        };
        RouteView {
            node: None,
            node_id: endpoint.to_string(),
            by,
            in_plan: false,
            via,
            blocked_by: self.who_blocks(via),
            arrival: None,
            contacts: Vec::new(),
        }
    }

    /// The source that says that all links to a neighbour are blocked.
    fn who_blocks(&self, via: Option<u64>) -> Option<Source> {
        let hops = self.shell.hops();
        let to_via = hops.iter().filter(|hop| Some(hop.neighbour) == via);
        let said = |hop: &HopSnapshot| hop.link.blocked.map(|(source, _)| source);
        let sources: Option<Vec<Source>> = to_via.map(said).collect();
        sources.and_then(|sources| sources.first().copied())
    }

    /// The contact plan, if one is followed.
    pub(super) fn contact_plan(&self) -> Option<ContactPlanView> {
        let config = self.config.get();
        let file = config.routing.contact_plan.as_ref()?;
        Some(ContactPlanView {
            file: file.display().to_string(),
            figures: self.contacts.figures()?,
        })
    }
}

impl fmt::Display for ContactPlanView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.figures;
        let of = |open: bool| {
            let neighbours = figures.neighbours.iter().filter(|n| n.open == open);
            let ids: Vec<String> = neighbours
                .map(|n| format!("ipn:{}.0", n.neighbour))
                .collect();
            match ids.is_empty() {
                true => "none".to_owned(),
                false => ids.join(", "),
            }
        };
        writeln!(
            f,
            "Contact plan {}: {}, ways to {} of {}; in contact with {}; not now with {}",
            self.file,
            counted(figures.contacts as u64, "contact"),
            figures.reached,
            counted(figures.nodes as u64, "node"),
            of(true),
            of(false)
        )?;
        for node in &figures.strangers {
            writeln!(
                f,
                "Contacts with ipn:{node}.0 are not used: it is no neighbour"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for RouteView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.node_id;
        let by = match self.by {
            DecidedBy::ThisNode => return writeln!(f, "{node} is this node"),
            DecidedBy::Nobody if self.in_plan => {
                return writeln!(
                    f,
                    "{node}: the contact plan has no way at present, and no route leads there: bundles are refused"
                );
            }
            DecidedBy::Nobody if self.node.is_none() => {
                return writeln!(f, "{node}: no route leads there: bundles are refused");
            }
            DecidedBy::Nobody => {
                return writeln!(
                    f,
                    "{node}: no contact plan and no route leads there: bundles are refused"
                );
            }
            DecidedBy::Route => "a route to this node",
            DecidedBy::ContactPlan => "the contact plan",
            DecidedBy::Neighbour => "a path of its own",
            DecidedBy::RouteToSeveral => "a route to several nodes",
        };
        match self.via {
            Some(via) => write!(f, "{node} by {by}, next ipn:{via}.0")?,
            None => write!(f, "{node} by {by}")?,
        }
        match self.blocked_by {
            Some(source) => writeln!(f, ", whose link is blocked ({})", source.name())?,
            None => writeln!(f)?,
        }
        let told = |time: OffsetDateTime| time.format(&Rfc3339).map_err(|_| fmt::Error);
        for contact in &self.contacts {
            writeln!(
                f,
                "  {} -> {}: {} to {}, {} bytes/s, {} ms, behind {} bytes",
                contact.from,
                contact.to,
                told(contact.start)?,
                told(contact.end)?,
                contact.rate_bytes_per_s,
                contact.owlt_ms,
                contact.booked_bytes
            )?;
        }
        match self.arrival {
            Some(arrival) => writeln!(f, "  what is ready now arrives at {}", told(arrival)?),
            None => Ok(()),
        }
    }
}
