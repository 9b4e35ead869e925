//! `underpass bp echo`: an echo service as an application.

use std::io::{Read, Seek};
use std::path::Path;

use serde_json::json;
use underpass_applications::wire::Event;

use super::command::{EchoCommand, Sending};
use super::connection::Connection;
use super::error::BpError;
use super::upload;

/// How long to wait for room for an answer, s.
const WAIT_S: f64 = 3600.0;

pub async fn execute(command: EchoCommand) -> Result<(), BpError> {
    let mut connection = Connection::open(&command.common, Some(&command.service)).await?;
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
            delivery,
            source,
            file_bytes,
            ..
        } = event
        else {
            continue;
        };
        // A bundle from this service itself would be echoed for ever.
        let answered = match file_bytes {
            _ if source == connection.endpoint => Ok(None),
            Some(bytes) => {
                let long = (delivery, bytes);
                send_back(&mut connection, &source, &sending, long).await
            }
            None => connection.send(&source, &sending, &[], &payload).await,
        };
        let bytes = file_bytes.unwrap_or(payload.len() as u64);
        // A bundle that cannot be answered does not stop the service.
        let refused = match answered {
            Ok(_) => None,
            Err(BpError::Refused { message, .. }) => Some(message),
            Err(error @ (BpError::TooLarge { .. } | BpError::TooLong { .. })) => {
                Some(error.to_string())
            }
            Err(error) => return Err(error),
        };
        match refused {
            None => connection.tell(
                &json!({"source": source, "bytes": bytes}),
                &format!("{bytes} bytes back to {source}"),
            )?,
            Some(why) => connection.tell(
                &json!({"source": source, "bytes": bytes, "error": why}),
                &format!("{bytes} bytes from {source} not answered: {why}"),
            )?,
        }
        connection.acknowledge(delivery).await?;
        left -= 1;
    }
    Ok(())
}

/// Sends back a payload that is on the node's disk, through a temporary file.
async fn send_back(
    connection: &mut Connection,
    source: &str,
    sending: &Sending,
    (delivery, bytes): (u64, u64),
) -> Result<Option<(u64, u64)>, BpError> {
    let path = Path::new("temporary file");
    let wrong = |source| BpError::File {
        path: path.to_owned(),
        source,
    };
    let mut whole = tempfile::tempfile().map_err(wrong)?;
    upload::receive(connection, delivery, bytes, &mut whole, path).await?;
    whole.rewind().map_err(wrong)?;
    let long = (&mut whole as &mut (dyn Read + Send), path, bytes);
    upload::send(connection, source, sending, Vec::new(), long).await
}
