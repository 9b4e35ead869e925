//! `underpass bp ping`.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;
use underpass_applications::wire::Event;

use super::command::PingCommand;
use super::connection::{Connection, waiting};
use super::error::BpError;

/// The run and the number in front of each payload.
const HEAD_BYTES: usize = 16;

pub async fn execute(mut command: PingCommand) -> Result<(), BpError> {
    let interval = waiting("interval", command.interval)?;
    let timeout = waiting("timeout", command.timeout)?;
    // Nobody waits for it any longer.
    command.sending.lifetime.get_or_insert(command.timeout);
    if command.size < HEAD_BYTES {
        return Err(BpError::Usage(format!(
            "--size {}: must be at least {HEAD_BYTES}",
            command.size
        )));
    }
    let mut connection =
        Connection::open(&command.common, command.sending.service.as_ref()).await?;
    connection.check_size(command.size as u64)?;
    let mut pings = Pings {
        run: fresh_number(),
        size: command.size,
        count: 0,
        sent: BTreeMap::new(),
        round_trips: Vec::new(),
    };
    // A user who ends it wants the results so far.
    tokio::select! {
        pinged = pings.run(&mut connection, &command, (interval, timeout)) => pinged?,
        _ = tokio::signal::ctrl_c() => {}
    }
    pings.summarise(&connection, &command)
}

/// A number that no other run has, most likely.
fn fresh_number() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The hasher's keys are random, new in each process.
    RandomState::new().build_hasher().finish()
}

struct Pings {
    run: u64,
    size: usize,
    /// How many were sent.
    count: u32,
    /// Those that have not come back.
    sent: BTreeMap<u64, Instant>,
    round_trips: Vec<Duration>,
}

impl Pings {
    /// Sends all, and waits for them to come back.
    async fn run(
        &mut self,
        connection: &mut Connection,
        command: &PingCommand,
        (interval, timeout): (Duration, Duration),
    ) -> Result<(), BpError> {
        let begun = Instant::now();
        for number in 0..command.count {
            let payload = self.payload(u64::from(number));
            self.sent.insert(u64::from(number), Instant::now());
            let sent = connection.send(&command.destination, &command.sending, &[], &payload);
            sent.await?;
            self.count = number + 1;
            let last = self.count == command.count;
            let until = match last {
                true => Instant::now() + timeout,
                false => begun + interval * self.count,
            };
            self.listen(connection, until, last).await?;
        }
        Ok(())
    }

    fn payload(&self, number: u64) -> Vec<u8> {
        let mut payload = [self.run.to_be_bytes(), number.to_be_bytes()].concat();
        payload.resize(self.size, 0);
        payload
    }

    /// Takes in what comes back; with `last`, until everything has.
    async fn listen(
        &mut self,
        connection: &mut Connection,
        until: Instant,
        last: bool,
    ) -> Result<(), BpError> {
        while !last || !self.sent.is_empty() {
            let Some((event, payload)) = connection.next(Some(until)).await? else {
                break;
            };
            let Event::Bundle {
                delivery, source, ..
            } = event
            else {
                continue;
            };
            connection.acknowledge(delivery).await?;
            if let Some((number, round_trip)) = self.came_back(&payload) {
                let ms = round_trip.as_secs_f64() * 1e3;
                let bytes = payload.len();
                let reply = json!({
                    "source": source, "number": number, "bytes": bytes, "round_trip_ms": ms,
                });
                let text = format!("{bytes} bytes from {source}: number {number}, {ms:.1} ms");
                connection.tell(&reply, &text)?;
            }
        }
        Ok(())
    }

    /// The number and round trip of a bundle of this run, at its first return.
    fn came_back(&mut self, payload: &Bytes) -> Option<(u64, Duration)> {
        let number = payload.get(8..HEAD_BYTES)?.try_into().ok()?;
        let number = u64::from_be_bytes(number);
        if payload[..] != self.payload(number) {
            return None;
        }
        let round_trip = self.sent.remove(&number)?.elapsed();
        self.round_trips.push(round_trip);
        Some((number, round_trip))
    }

    fn summarise(&self, connection: &Connection, command: &PingCommand) -> Result<(), BpError> {
        let received = self.round_trips.len();
        let ms = self.round_trips.iter().map(|time| time.as_secs_f64() * 1e3);
        let least = ms.clone().reduce(f64::min);
        let most = ms.clone().reduce(f64::max);
        let mean = (received > 0).then(|| ms.sum::<f64>() / received as f64);
        let sent = self.count;
        let destination = &command.destination;
        let summary = json!({
            "destination": destination, "sent": sent, "received": received,
            "least_ms": least, "mean_ms": mean, "most_ms": most,
        });
        let times = match (least, mean, most) {
            (Some(least), Some(mean), Some(most)) => {
                format!(", round trip {least:.1}/{mean:.1}/{most:.1} ms (least/mean/most)")
            }
            _ => String::new(),
        };
        let text = format!("{destination}: {sent} sent, {received} back{times}");
        connection.tell(&summary, &text)?;
        match received {
            0 if sent > 0 => Err(BpError::NoEcho(destination.clone())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_sent_counts_and_only_once() {
        let mut pings = Pings {
            run: 5,
            size: 20,
            count: 4,
            sent: BTreeMap::from([(3, Instant::now())]),
            round_trips: Vec::new(),
        };
        let payload = Bytes::from(pings.payload(3));
        let other = Pings {
            run: 6,
            size: 20,
            count: 0,
            sent: BTreeMap::new(),
            round_trips: Vec::new(),
        };
        assert!(pings.came_back(&other.payload(3).into()).is_none());
        assert!(pings.came_back(&payload.slice(..19)).is_none());
        assert!(pings.came_back(&payload.slice(..7)).is_none());
        assert_eq!(pings.came_back(&payload).map(|(number, _)| number), Some(3));
        assert!(pings.came_back(&payload).is_none());
    }
}
