//! The beam between its TUN devices: one thread that moves packets in and out
//! when they are due.
//!
//! One thread is enough for some 500 Mbit/s of 1500-byte packets, keeps the
//! order of packets, and leaves the machine's other cores to the traffic's
//! end points.

mod clock;
mod directory;

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;

use crate::beam::{Beam, BeamError, Direction, Nanos, TerminalProfile};
use crate::config::{BlockageConfig, Config, PcapPoint, TerminalConfig};
use crate::control::{
    BeamStatistics, Command, Reply, Request, Server, execute, queue_series, terminal_statistics,
};
use crate::pcap::PcapWriter;
use crate::trace::TraceError;
use crate::tun::{Tun, TunError};

use clock::Clock;
use directory::{Destination, Directory};

/// Packets read from one device before the others and due packets have a turn.
const BURST_PACKETS: usize = 64;

/// Lateness that is counted, ns.
const LATE: Nanos = 1_000_000;

/// Why the emulator cannot begin or go on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum EmulatorError {
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The beam's profile cannot be.
    #[error(transparent)]
    Beam(#[from] BeamError),
    #[error("blockage: {0}")]
    Blockage(String),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("control socket {path}: {source}")]
    Socket { path: String, source: io::Error },
    #[error("pcap: {0}")]
    Pcap(io::Error),
    #[error("the hub's device: {0}")]
    Hub(io::Error),
    #[error("waiting for packets: {0}")]
    Wait(io::Error),
}

/// A running beam.
pub struct Emulator {
    beam: Beam,
    clock: Clock,
    hub: Tun,
    /// By the beam's index; `None` once the device is gone.
    terminals: Vec<Option<Tun>>,
    directory: Directory,
    server: Server,
    signals: SignalFd,
    pcap: Option<(PcapPoint, PcapWriter<BufWriter<File>>)>,
    counts: BeamStatistics,
    /// What the kernel had dropped when counts were last reset.
    unread_before: u64,
    buffer: Vec<u8>,
    gather: Duration,
    /// Whether a burst was used up, so that more work waits.
    behind: bool,
    realtime: bool,
    running: bool,
}

impl Emulator {
    /// Makes the devices and opens the control socket.
    pub fn new(config: &Config) -> Result<Self, EmulatorError> {
        // Before any thread begins, so that all inherit it.
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTERM);
        mask.add(Signal::SIGINT);
        mask.thread_block().map_err(wait_error)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags).map_err(wait_error)?;

        let hub = Tun::create(&config.hub)?;
        let mut terminals = Vec::new();
        for terminal in &config.terminals {
            terminals.push(Some(Tun::create(&terminal.device_config())?));
        }
        let pcap = match &config.pcap {
            Some(wanted) => Some((
                wanted.at,
                PcapWriter::create(wanted).map_err(EmulatorError::Pcap)?,
            )),
            None => None,
        };
        let server = Server::listen(&config.socket).map_err(|source| EmulatorError::Socket {
            path: config.socket.display().to_string(),
            source,
        })?;
        let prefixes = config
            .terminals
            .iter()
            .enumerate()
            .flat_map(|(index, terminal)| terminal.reached_by().map(move |net| (net, index)));
        let clock = Clock::new().map_err(EmulatorError::Wait)?;
        Ok(Emulator {
            beam: beam_of(config, clock.now())?,
            clock,
            hub,
            terminals,
            directory: Directory::new(prefixes.collect()),
            server,
            signals,
            pcap,
            counts: BeamStatistics::default(),
            unread_before: 0,
            buffer: vec![0; 1 << 16],
            gather: Duration::from_micros(config.gather_us),
            behind: false,
            realtime: config.realtime,
            running: true,
        })
    }

    /// Moves packets until SIGTERM, SIGINT or `shutdown`.
    pub fn run(mut self) -> Result<(), EmulatorError> {
        if self.realtime
            && let Err(error) = clock::ask_for_realtime()
        {
            eprintln!("satlink: no real-time scheduling ({error}); packets may be late");
        }
        while self.running {
            let ready = self.wait()?;
            for (index, source) in ready.iter().enumerate() {
                match (index, source) {
                    (_, false) => {}
                    (0, true) => self.running = false,
                    (1, true) => self.obey(),
                    (2, true) => self.take_from_hub()?,
                    (_, true) => self.take_from_terminal(index - 3)?,
                }
            }
            self.deliver()?;
            // Work that comes meanwhile is done together. Waking for every packet would cost twice
            // the processor time, which the end points of the traffic need.
            if !std::mem::take(&mut self.behind) && self.running {
                thread::sleep(self.gather);
            }
        }
        match &mut self.pcap {
            Some((_, writer)) => writer.flush().map_err(EmulatorError::Pcap),
            None => Ok(()),
        }
    }

    /// Waits for the next packet, command, signal or deadline; says which of
    /// signals, control, hub and terminals, in this order, want attention.
    fn wait(&self) -> Result<Vec<bool>, EmulatorError> {
        let mut sources = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.server.wake().as_fd(), PollFlags::POLLIN),
            PollFd::new(self.hub.as_fd(), PollFlags::POLLIN),
        ];
        let hub = self.hub.as_fd();
        sources.extend(self.terminals.iter().map(|terminal| match terminal {
            Some(tun) => PollFd::new(tun.as_fd(), PollFlags::POLLIN),
            None => PollFd::new(hub, PollFlags::empty()),
        }));
        let timeout = self.beam.next_deadline().map(|deadline| {
            TimeSpec::from_duration(Duration::from_nanos(
                deadline.saturating_sub(self.clock.now()),
            ))
        });
        match ppoll(&mut sources, timeout, None) {
            Ok(_) => {}
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(wait_error(error)),
        }
        let ready = |source: &PollFd| source.revents().is_some_and(|events| !events.is_empty());
        Ok(sources.iter().map(ready).collect())
    }

    fn take_from_hub(&mut self) -> Result<(), EmulatorError> {
        for _ in 0..BURST_PACKETS {
            let read = self.hub.read(&mut self.buffer);
            let Some(bytes) = read.map_err(EmulatorError::Hub)? else {
                return Ok(());
            };
            match self.directory.resolve(&self.buffer[..bytes]) {
                Destination::Terminal(terminal) => {
                    self.take(Direction::Forward, terminal, bytes)?;
                }
                Destination::Unrouted => self.counts.unrouted_packets += 1,
                Destination::LinkLocal => self.counts.link_local_packets += 1,
            }
        }
        self.behind = true;
        Ok(())
    }

    fn take_from_terminal(&mut self, terminal: usize) -> Result<(), EmulatorError> {
        for _ in 0..BURST_PACKETS {
            let Some(tun) = &self.terminals[terminal] else {
                return Ok(());
            };
            match tun.read(&mut self.buffer) {
                Ok(None) => return Ok(()),
                Ok(Some(bytes)) if Directory::is_for_hub(&self.buffer[..bytes]) => {
                    self.take(Direction::Return, terminal, bytes)?;
                }
                Ok(Some(_)) => self.counts.link_local_packets += 1,
                Err(error) => {
                    // Its namespace was deleted; the others continue.
                    let name = self.beam.terminal_name(terminal);
                    eprintln!("satlink: the device of terminal {name:?} is gone: {error}");
                    self.terminals[terminal] = None;
                }
            }
        }
        self.behind = true;
        Ok(())
    }

    /// Puts the packet at the buffer's beginning on the beam.
    fn take(
        &mut self,
        direction: Direction,
        terminal: usize,
        bytes: usize,
    ) -> Result<(), EmulatorError> {
        let now = self.clock.now();
        let packet = &self.buffer[..bytes];
        if let Some((PcapPoint::Entry, writer)) = &mut self.pcap {
            writer
                .record(self.clock.since_unix_epoch(now), packet)
                .map_err(EmulatorError::Pcap)?;
        }
        self.beam.enqueue(now, direction, terminal, packet);
        Ok(())
    }

    /// Hands out what is due, in bursts, so that reading has its turn.
    fn deliver(&mut self) -> Result<(), EmulatorError> {
        for _ in 0..BURST_PACKETS {
            let now = self.clock.now();
            let Some(arrival) = self.beam.poll(now) else {
                return Ok(());
            };
            let lateness = now - arrival.due;
            self.counts.lateness_max_ns = self.counts.lateness_max_ns.max(lateness);
            self.counts.late_packets += u64::from(lateness > LATE);
            if let Some((PcapPoint::Exit, writer)) = &mut self.pcap {
                writer
                    .record(self.clock.since_unix_epoch(now), &arrival.packet)
                    .map_err(EmulatorError::Pcap)?;
            }
            let exit = match arrival.direction {
                Direction::Forward => self.terminals[arrival.terminal].as_ref(),
                Direction::Return => Some(&self.hub),
            };
            // The kernel says why in the counters of its own.
            if exit.is_none_or(|tun| tun.write(&arrival.packet).is_err()) {
                self.counts.refused_packets += 1;
            }
        }
        self.behind = true;
        Ok(())
    }

    /// Carries out the commands that wait.
    fn obey(&mut self) {
        while let Some(Command { request, reply }) = self.server.next_command() {
            let now = self.clock.now();
            let answer = match request {
                Request::Stats {} => self.statistics(now).map(|stats| Reply {
                    stats: Some(stats),
                    ..Reply::default()
                }),
                Request::Queue {
                    terminal,
                    direction,
                } => queue_series(&mut self.beam, now, &terminal, direction).map(|queue| Reply {
                    queue: Some(queue),
                    ..Reply::default()
                }),
                Request::Shutdown {} => {
                    self.running = false;
                    Ok(Reply::default())
                }
                request => self.execute(now, request).map(|()| Reply::default()),
            };
            let answer = match answer {
                Ok(reply) => Reply {
                    ok: true,
                    now_s: Some((now - self.beam.epoch()) as f64 / 1e9),
                    ..reply
                },
                Err(error) => Reply::refused(error),
            };
            // A client that has gone does not want to know.
            let _ = reply.send(answer);
        }
    }

    fn execute(&mut self, now: Nanos, request: Request) -> Result<(), String> {
        if request == (Request::ResetStats {}) {
            self.unread_before = self.unread()?;
            self.counts = BeamStatistics::default();
        }
        execute(&mut self.beam, now, request)
    }

    fn statistics(&mut self, now: Nanos) -> Result<BeamStatistics, String> {
        Ok(BeamStatistics {
            now_ns: now,
            epoch_ns: self.beam.epoch(),
            unread_packets: self.unread()?.saturating_sub(self.unread_before),
            terminals: terminal_statistics(&mut self.beam, now),
            ..self.counts.clone()
        })
    }

    /// Packets that the kernel dropped at the devices, since they were made.
    fn unread(&self) -> Result<u64, String> {
        let devices = self.terminals.iter().flatten().chain([&self.hub]);
        devices
            .map(|tun| tun.dropped().map_err(|error| format!("counters: {error}")))
            .sum()
    }
}

fn beam_of(config: &Config, now: Nanos) -> Result<Beam, EmulatorError> {
    let profile = |terminal: &TerminalConfig| {
        let blockages = terminal
            .blockages
            .iter()
            .map(BlockageConfig::interval)
            .collect::<Result<_, _>>()
            .map_err(EmulatorError::Blockage)?;
        Ok(TerminalProfile {
            name: terminal.name.clone(),
            forward: terminal.forward.clone(),
            ret: terminal.ret.clone(),
            blockages,
        })
    };
    let terminals = config
        .terminals
        .iter()
        .map(profile)
        .collect::<Result<_, EmulatorError>>()?;
    let capacity = [config.beam.forward, config.beam.ret];
    let mut beam = Beam::new(now, config.seed, capacity, terminals)?;
    for (index, terminal) in config.terminals.iter().enumerate() {
        if let Some(trace) = terminal.load_trace()? {
            beam.set_trace(now, index, trace);
        }
    }
    Ok(beam)
}

fn wait_error(errno: nix::Error) -> EmulatorError {
    EmulatorError::Wait(errno.into())
}
