//! `underpass enroll`: makes a bare node one of the fleet.
//!
//! The key is made here and never leaves the machine. Until everything is written it is kept beside
//! the configuration. So if a run is cut short or its answer is lost, the same command completes
//! it: the service gives the same key the same certificate again.

mod error;
mod files;
mod owner;
mod renewal;
mod token;

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use underpass_control_client::{Service, ServiceConfig, Trust};
use underpass_pki::Delivered;

pub use error::EnrolError;
use files::Place;
pub use renewal::Renewal;
use token::EnrolmentToken;

use crate::check;
use crate::cli::EnrollCommand;

/// How long an answer may take, a round trip by satellite included.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The largest answer: the revocation list of a large fleet.
const MAX_ANSWER_BYTES: usize = 16 << 20;

#[derive(Debug, Deserialize)]
struct Answer {
    node: u64,
    #[serde(flatten)]
    delivered: Delivered,
    /// The node's configuration, TOML.
    configuration: String,
}

/// Enrols this node.
///
/// # Errors
/// When files of a node already exist, the service is not the one of the token, or it refuses. Once
/// the reason is gone, the same command completes the enrolment.
pub fn execute(command: &EnrollCommand) -> Result<(), EnrolError> {
    let text = match &command.token_file {
        Some(path) => files::read_token(path)?,
        None => command.token.clone().unwrap_or_default(),
    };
    let token = EnrolmentToken::parse(&text).ok_or(EnrolError::Token)?;
    if !command.url.starts_with("https://") {
        return Err(EnrolError::NotEncrypted(command.url.clone()));
    }
    let place = Place::new(&command.config, &token.text, command.force);
    place.check_free()?;
    let key = place.key()?;
    let request = key.request(token.node)?;
    if stderr().is_terminal() {
        let within = TIMEOUT.as_secs();
        eprintln!("asking {}, within {within} s …", command.url);
    }
    let answer = match ask(&command.url, &token, &request) {
        Err(error) if error.is_final() => {
            place.forget_key();
            return Err(error);
        }
        answer => answer?,
    };
    if answer.node != token.node {
        return Err(EnrolError::OtherNode(answer.node, token.node));
    }
    place.fill(token.node, &key, &answer.delivered, &answer.configuration)?;
    println!(
        "node {} is enrolled: its key has not left this machine",
        token.node
    );
    check::execute(&command.config)?;
    println!("start it by: systemctl start underpass (or: underpass run)");
    Ok(())
}

/// Sends the request to the service. The token's fingerprint authenticates the service before the
/// token is sent.
fn ask(url: &str, token: &EnrolmentToken, request: &str) -> Result<Answer, EnrolError> {
    let service = Service::new(ServiceConfig {
        url: url.to_owned(),
        token_file: None,
        trust: Trust::Fingerprint(token.fingerprint),
        timeout: TIMEOUT,
    })?;
    let body = json!({ "token": token.text, "request": request }).to_string();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(EnrolError::Runtime)?;
    let answer = runtime.block_on(service.post("/v1/node/enrolment", body, MAX_ANSWER_BYTES));
    Ok(serde_json::from_slice(&answer?)?)
}
