//! A hub's engine and its terminals; the program carries bundles between them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{MemoryStore, Store};
use underpass_cla::{Class, Outcome, SessionId, Transfer};
use underpass_engine::{Action, Engine, HopId, StreamKey};
use underpass_streams::{Event, Open, Target};

use crate::configs::{self, CLASSES, HUB, STREAMS};

/// Custody signals and credit arrive within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was carried so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Stream bundles that the terminals have received.
    pub delivered: u64,
    /// Bundles from the terminals to the hub.
    pub returned: u64,
    /// The time spent in calls of the hub's engine.
    pub hub: Duration,
    written_bytes: u64,
    read_bytes: u64,
}

/// One engine of a hub with its terminals.
pub struct Beam {
    hub: Engine,
    terminals: Vec<Engine>,
    /// One stream to each terminal, in the terminals' order.
    streams: Vec<StreamKey>,
    /// The bytes of each write.
    payload: Bytes,
    counts: Counts,
}

impl Beam {
    /// This many engines of one hub, each with its own terminals.
    pub fn shards(count: usize, terminals: u64, bytes: usize) -> Result<Vec<Beam>, String> {
        let config = configs::engine(HUB, HUB + 1..=HUB + terminals);
        let stores = (0..count).map(|_| Box::<MemoryStore>::default());
        let stores = stores.map(|store| store as Box<dyn Store>).collect();
        let engines = Engine::of_shards(Instant::now(), &config, stores);
        let engines = engines.map_err(|error| error.to_string())?;
        engines
            .into_iter()
            .map(|hub| Beam::new(hub, bytes))
            .collect()
    }

    /// Sets up the sessions, and opens a stream to each terminal.
    fn new(mut hub: Engine, bytes: usize) -> Result<Beam, String> {
        let now = Instant::now();
        let make = |config| Engine::new(now, config).map_err(|error| error.to_string());
        let mut all = Vec::new();
        let mut streams = Vec::new();
        let numbers: Vec<u64> = hub.hop_ids().into_iter().map(|HopId(node)| node).collect();
        for (number, node) in numbers.iter().copied().enumerate() {
            let mut terminal = make(configs::engine(node, [HUB].into_iter()))?;
            for class in 0..CLASSES {
                let info = configs::session(Class(class as u8));
                let there = SessionId(number as u64 * CLASSES + class);
                hub.session_up(now, there, HopId(node), info.clone());
                hub.session_ready(now, there);
                terminal.session_up(now, SessionId(class), HopId(HUB), info);
                terminal.session_ready(now, SessionId(class));
            }
            all.push(terminal);
        }
        for node in numbers {
            let open = Open::new(
                STREAMS,
                Target::Name {
                    host: "origin.example".to_owned(),
                    port: 80,
                },
            );
            streams.push(hub.open(now, node, open).map_err(|e| e.to_string())?);
        }
        Ok(Beam {
            hub,
            terminals: all,
            streams,
            payload: vec![b'x'; bytes].into(),
            counts: Counts::default(),
        })
    }

    /// What was carried so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sends one bundle to each terminal, and carries what follows at once.
    pub fn round(&mut self) -> Result<(), String> {
        for number in 0..self.streams.len() {
            let now = Instant::now();
            let key = self.streams[number];
            let payload = self.payload.clone();
            let written = self.of_hub(|hub| hub.write(now, key, payload));
            written.map_err(|error| format!("the hub takes no bytes: {error}"))?;
            self.counts.written_bytes += self.payload.len() as u64;
            self.carry(now)?;
        }
        self.heed_deadlines()
    }

    /// Waits until all written bytes have been read and all custody is released.
    pub fn finish(&mut self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            self.heed_deadlines()?;
            let now = Instant::now();
            let waiting = self.hub.custody(now).bundles;
            let Counts {
                written_bytes,
                read_bytes,
                ..
            } = self.counts;
            if written_bytes == read_bytes && waiting == 0 {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                return Err(format!(
                    "{read_bytes} of {written_bytes} bytes read, {waiting} bundles in custody"
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn heed_deadlines(&mut self) -> Result<(), String> {
        let now = Instant::now();
        let is_due = |engine: &Engine| engine.next_timeout().is_some_and(|at| at <= now);
        if is_due(&self.hub) {
            self.of_hub(|hub| hub.handle_timeout(now));
            self.carry(now)?;
        }
        for number in 0..self.terminals.len() {
            if is_due(&self.terminals[number]) {
                self.terminals[number].handle_timeout(now);
                self.take_from(now, number)?;
                self.carry(now)?;
            }
        }
        Ok(())
    }

    /// Calls the hub's engine, and measures the time. A profile shows the hub's part
    /// under this name.
    #[inline(never)]
    fn of_hub<R>(&mut self, call: impl FnOnce(&mut Engine) -> R) -> R {
        let started = Instant::now();
        let result = call(&mut self.hub);
        self.counts.hub += started.elapsed();
        result
    }

    /// Carries what the hub offers.
    fn carry(&mut self, now: Instant) -> Result<(), String> {
        while let Some(action) = self.of_hub(Engine::poll_action) {
            let Action::Offer { session, transfer } = action else {
                continue;
            };
            let number = usize::try_from(session.0 / CLASSES).map_err(|e| e.to_string())?;
            let there = SessionId(session.0 % CLASSES);
            let terminal = &mut self.terminals[number];
            give(now, terminal, there, &transfer)?;
            self.counts.delivered += u64::from(transfer.len() > self.payload.len() as u64);
            self.of_hub(|hub| {
                hub.transfer_finished(now, transfer.key, Outcome::Acknowledged);
                hub.session_ready(now, session);
            });
            self.take_from(now, number)?;
        }
        Ok(())
    }

    /// Reads the bytes that have arrived at a terminal, and carries its offers.
    fn take_from(&mut self, now: Instant, number: usize) -> Result<(), String> {
        while let Some(action) = self.terminals[number].poll_action() {
            match action {
                Action::Offer { session, transfer } => {
                    let there = SessionId(number as u64 * CLASSES + session.0);
                    self.of_hub(|hub| give(now, hub, there, &transfer))?;
                    self.counts.returned += 1;
                    let terminal = &mut self.terminals[number];
                    terminal.transfer_finished(now, transfer.key, Outcome::Acknowledged);
                    terminal.session_ready(now, session);
                }
                Action::Stream { peer, epoch, event } => {
                    let (Event::Opened { id, .. } | Event::Readable(id)) = event else {
                        continue;
                    };
                    let key = StreamKey { peer, epoch, id };
                    let terminal = &mut self.terminals[number];
                    while let Some(data) = terminal.read(now, key, usize::MAX) {
                        self.counts.read_bytes += data.len() as u64;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Gives a bundle to the engine at the other end, in a separate copy, as from a socket.
fn give(
    now: Instant,
    to: &mut Engine,
    session: SessionId,
    transfer: &Transfer,
) -> Result<(), String> {
    let raw = Bytes::from(transfer.chunks.concat());
    let taken = to.receive(now, session, to.decoder().decode(&raw));
    taken.map_err(|refusal| format!("a bundle is refused: {refusal:?}"))
}
