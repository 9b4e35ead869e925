//! `underpass bp echo`: an echo service as an application.

use serde_json::json;
use underpass_applications::wire::Event;

use super::command::{EchoCommand, Sending};
use super::connection::Connection;
use super::error::BpError;

/// How long to wait for room for an answer, s.
const WAIT_S: f64 = 3600.0;

pub async fn execute(command: EchoCommand) -> Result<(), BpError> {
    let mut connection = Connection::open(&command.common, Some(command.service)).await?;
    let sending = Sending {
        service: None,
        lifetime: None,
        no_custody: false,
        wait: WAIT_S,
    };
    let mut left = command.count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some((event, payload)) = connection.next(None).await? else {
            break;
        };
        let Event::Bundle {
            delivery, source, ..
        } = event
        else {
            continue;
        };
        // Its own would go round and round.
        let answered = match source == connection.endpoint {
            true => Ok(None),
            false => connection.send(&source, &sending, &[], &payload).await,
        };
        let bytes = payload.len();
        match answered {
            Ok(_) => connection.tell(
                &json!({"source": source, "bytes": bytes}),
                &format!("{bytes} bytes back to {source}"),
            )?,
            // One that cannot be answered is no reason not to answer others.
            Err(BpError::Refused { message, .. }) => connection.tell(
                &json!({"source": source, "bytes": bytes, "error": message}),
                &format!("{bytes} bytes from {source} not answered: {message}"),
            )?,
            Err(error) => return Err(error),
        }
        connection.acknowledge(delivery).await?;
        left -= 1;
    }
    Ok(())
}
