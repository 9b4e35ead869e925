//! GET /v1/control: the contact with the control service.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use underpass_control_client::Contact;

use super::ApiState;
use super::problem::Problem;

/// The contact with the control service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControlView {
    pub url: String,
    /// How posting reports fares.
    pub reports: ContactView,
    /// How following plans fares.
    pub plans: ContactView,
    pub waiting: u64,
    /// Those among them that are on the disk.
    pub spooled: u64,
    pub waiting_bytes: u64,
    /// Reports that it took in since the start.
    pub accepted: u64,
    /// Reports that it will never take.
    pub refused: u64,
    /// Reports given up for want of room.
    pub dropped: u64,
    /// Events of its stream that were skipped because they were too large.
    #[serde(default)]
    pub events_passed_over: u64,
    /// This node's clock minus the service's, ms; null while unknown.
    pub clock_offset_ms: Option<i64>,
}

/// One sort of requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContactView {
    /// untried, well, away or denied.
    pub state: String,
    /// Why it is not well.
    pub error: Option<String>,
    /// Time since it last worked, s; null if it never did.
    pub well_s: Option<f64>,
}

impl ContactView {
    fn of(contact: Contact) -> ContactView {
        ContactView {
            state: contact.state.name().to_owned(),
            error: contact.error,
            well_s: contact.well.map(|at| at.elapsed().as_secs_f64()),
        }
    }
}

impl ApiState {
    /// The contact with the control service, where there is one.
    pub(super) fn control(&self) -> Option<ControlView> {
        let running = self.config.get();
        let (contacts, config) = (self.control.as_ref()?, running.control.as_ref()?);
        let figures = contacts.posting.figures();
        Some(ControlView {
            url: config.url.clone(),
            reports: ContactView::of(contacts.posting.contact()),
            plans: ContactView::of(contacts.following.contact()),
            waiting: figures.waiting,
            spooled: figures.spooled,
            waiting_bytes: figures.waiting_bytes,
            accepted: figures.accepted,
            refused: figures.refused,
            dropped: figures.dropped,
            events_passed_over: contacts.following.passed_over(),
            clock_offset_ms: self.control_clock.offset_ms(),
        })
    }
}

/// GET /v1/control
pub async fn show(State(state): State<Arc<ApiState>>) -> Result<Json<ControlView>, Problem> {
    let view = state.control();
    view.map(Json)
        .ok_or_else(|| Problem::not_found("this node has no [control]"))
}
