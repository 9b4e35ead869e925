//! A live emulator between two namespaces, and what is measured through it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::{Map, json};

use crate::control::{Request, send as ask};

use super::record::quantile;
use super::station::Station;
use super::traffic::{self, PACKET_BYTES, Passage};
use super::{DELAY_MS, SelftestError, failed};

const PORT: u16 = 7700;
const TERMINAL: &str = "10.77.0.2";

pub(super) struct Bench {
    hub: Station,
    terminal: Station,
    emulator: Child,
    directory: PathBuf,
    socket: PathBuf,
}

impl Bench {
    /// Starts the emulator and waits until it is ready.
    pub(super) fn start(program: &Path) -> Result<Self, SelftestError> {
        let (hub, terminal) = (Station::new()?, Station::new()?);
        let directory =
            std::env::temp_dir().join(format!("satlink-selftest-{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(failed("make a directory"))?;
        let (socket, config) = (directory.join("socket"), directory.join("beam.toml"));
        let text = format!(
            "socket = {socket:?}\n\
             [hub]\nnetns = {:?}\ndevice = \"sat0\"\naddresses = [\"10.77.0.1/24\"]\n\
             [[terminal]]\nname = \"t1\"\nnetns = {:?}\ndevice = \"sat0\"\n\
             addresses = [\"{TERMINAL}/24\"]\n",
            hub.path, terminal.path
        );
        fs::write(&config, text).map_err(failed("write a configuration"))?;
        let emulator = Command::new(program)
            .arg("run")
            .arg("--config")
            .arg(&config)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed("start satlink"))?;
        let mut bench = Bench {
            hub,
            terminal,
            emulator,
            directory,
            socket,
        };
        let mut line = String::new();
        if let Some(output) = bench.emulator.stdout.take() {
            BufReader::new(output)
                .read_line(&mut line)
                .map_err(failed("hear from satlink"))?;
        }
        if !line.starts_with("ready") {
            return Err(SelftestError::Emulator("it did not get ready".into()));
        }
        Ok(bench)
    }

    /// Sets rate and delay of both directions.
    pub(super) fn set_link(
        &self,
        rate_bps: Option<u64>,
        delay_ms: f64,
    ) -> Result<(), SelftestError> {
        let keys = [("rate_bps", json!(rate_bps)), ("delay_ms", json!(delay_ms))];
        let request = Request::Set {
            terminal: None,
            direction: None,
            link: Map::from_iter(keys.map(|(key, value)| (key.to_owned(), value))),
        };
        match ask(&self.socket, &request)?.error {
            Some(error) => Err(SelftestError::Emulator(error)),
            None => Ok(()),
        }
    }

    /// The 99th percentile of how far packets' delay was from what is
    /// configured, with packets at `load_bps` on a hop without a rate.
    pub(super) fn delay_error_p99_ms(&self, load_bps: u64) -> Result<f64, SelftestError> {
        let passages = self.exchange(load_bps, Duration::from_millis(1200))?;
        let mut errors: Vec<f64> = passages
            .iter()
            .map(|one| ((one.arrived as f64 - one.sent as f64) / 1e6 - DELAY_MS).abs())
            .collect();
        errors.sort_by(f64::total_cmp);
        Ok(quantile(&errors, 0.99))
    }

    /// How far the rate of a hop that is offered a third more than `rate_bps`
    /// is from that, in percent.
    pub(super) fn rate_error_percent(&self, rate_bps: u64) -> Result<f64, SelftestError> {
        let passages = self.exchange(rate_bps / 3 * 4, Duration::from_secs(2))?;
        let (Some(first), Some(last)) = (passages.first(), passages.last()) else {
            return Err(SelftestError::Silence(passages.len()));
        };
        let bits = (passages.len() - 1) * PACKET_BYTES * 8;
        let measured = bits as f64 * 1e9 / (last.arrived - first.arrived) as f64;
        Ok((measured / rate_bps as f64 - 1.0).abs() * 100.0)
    }

    /// IP bits per second that a TCP connection moves through a hop without
    /// a rate, in Mbit/s.
    pub(super) fn throughput_mbps(&self) -> Result<f64, SelftestError> {
        let before = self.forward_bytes()?;
        let listening = self.terminal.spawn(|| TcpListener::bind(("0.0.0.0", PORT)));
        let listener = wait(&listening)?.map_err(failed("listen"))?;
        let sink = self.terminal.spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let mut buffer = vec![0; 1 << 18];
            while stream.read(&mut buffer)? > 0 {}
            Ok(())
        });
        let source = self.hub.spawn(|| {
            let mut stream = TcpStream::connect(terminal())?;
            let (buffer, begin) = (vec![0; 1 << 18], Instant::now());
            while begin.elapsed() < Duration::from_secs(3) {
                stream.write_all(&buffer)?;
            }
            Ok(begin.elapsed())
        });
        let span = wait(&source)?.map_err(failed("send"))?;
        let moved = self.forward_bytes()? - before;
        wait(&sink)?.map_err(failed("receive"))?;
        Ok(moved as f64 * 8.0 / span.as_secs_f64() / 1e6)
    }

    fn forward_bytes(&self) -> Result<u64, SelftestError> {
        let stats = ask(&self.socket, &Request::Stats {})?.stats;
        let terminals = stats.map(|stats| stats.terminals).unwrap_or_default();
        Ok(terminals
            .values()
            .map(|terminal| terminal.forward.counts.bytes_out)
            .sum())
    }

    /// Sends packets from the hub to the terminal for a time.
    fn exchange(&self, rate_bps: u64, span: Duration) -> Result<Vec<Passage>, SelftestError> {
        let opening = self.terminal.spawn(|| traffic::receiver(PORT));
        let socket: UdpSocket = wait(&opening)?.map_err(failed("open a socket"))?;
        let receiving = self
            .terminal
            .spawn(move || traffic::receive(&socket, Duration::from_millis(700)));
        let sending = self
            .hub
            .spawn(move || traffic::send(terminal(), rate_bps, span));
        wait(&sending)?.map_err(failed("send"))?;
        let passages = wait(&receiving)?.map_err(failed("receive"))?;
        match passages.len() {
            few @ 0..100 => Err(SelftestError::Silence(few)),
            _ => Ok(passages),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // It ends by itself when asked; the rest makes sure of it.
        let _ = ask(&self.socket, &Request::Shutdown {});
        let begin = Instant::now();
        while matches!(self.emulator.try_wait(), Ok(None)) {
            if begin.elapsed() > Duration::from_secs(2) {
                let _ = self.emulator.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn terminal() -> SocketAddr {
    SocketAddr::new(TERMINAL.parse().expect("the constant is an address"), PORT)
}

/// The outcome of work at a station, which never takes longer than this.
fn wait<T>(outcome: &Receiver<T>) -> Result<T, SelftestError> {
    outcome
        .recv_timeout(Duration::from_secs(15))
        .map_err(|_| SelftestError::Emulator("traffic through it stalled".into()))
}
