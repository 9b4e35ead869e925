//! A node made of Hardy's crates, whose applications are two folders and an echo.
//!
//! A payload that is delivered to `--service` becomes a file in the inbox. A file in the outbox,
//! named `DESTINATION#ANYTHING`, is sent and removed. Files appear in both by renaming.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use hardy_bpa::bpa::{Bpa, BpaRegistration};
use hardy_bpa::node_ids::NodeIds;
use hardy_bpa::services::{self, Application, ApplicationSink, StatusNotify};
use hardy_bpa::{Bytes, async_trait};
use hardy_bpv7::bundle::Id;
use hardy_bpv7::eid::{Eid, NodeId, Service};
use hardy_bpv7::status_report::ReasonCode;
use hardy_tcpclv4::Cla;
use hardy_tcpclv4::config::{Config, TlsConfig};
use time::OffsetDateTime;

type Error = Box<dyn std::error::Error + Send + Sync>;

const LIFETIME: Duration = Duration::from_secs(3600);
const OUTBOX_INTERVAL: Duration = Duration::from_millis(20);
const ECHO_SERVICE: u32 = 7;

#[derive(Parser)]
struct Arguments {
    /// Its node ID, `ipn:N.0`.
    #[arg(long)]
    node: NodeId,
    /// The service whose payloads go to the inbox, and from which the outbox is sent.
    #[arg(long)]
    service: u32,
    /// Where it takes sessions of TCPCLv4.
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    inbox: PathBuf,
    #[arg(long)]
    outbox: PathBuf,
    /// A certificate and its key, PEM: with them it speaks TLS.
    #[arg(long, requires = "key")]
    certificate: Option<PathBuf>,
    #[arg(long)]
    key: Option<PathBuf>,
    /// A folder with the certificates of authorities.
    #[arg(long)]
    authorities: Option<PathBuf>,
}

/// The service that has the folders.
struct Folders {
    inbox: PathBuf,
    received: AtomicU64,
    sink: OnceLock<Box<dyn ApplicationSink>>,
}

impl Folders {
    /// Write a payload so that no reader sees part of it.
    fn put(&self, payload: &[u8]) -> std::io::Result<()> {
        let number = self.received.fetch_add(1, Ordering::Relaxed);
        let part = self.inbox.join(format!(".{number}"));
        std::fs::write(&part, payload)?;
        std::fs::rename(part, self.inbox.join(number.to_string()))
    }

    /// Send what lies in the outbox.
    async fn send_all(&self, outbox: &Path) -> Result<(), Error> {
        let sink = self.sink.get().ok_or("the service is not registered")?;
        for entry in std::fs::read_dir(outbox)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some((destination, _)) = name.split_once('#') else {
                continue;
            };
            let payload = Bytes::from(std::fs::read(&path)?);
            sink.send(destination.parse::<Eid>()?, payload, LIFETIME, None)
                .await?;
            std::fs::remove_file(&path)?;
        }
        Ok(())
    }
}

#[async_trait]
impl Application for Folders {
    async fn on_register(&self, _source: &Eid, sink: Box<dyn ApplicationSink>) {
        _ = self.sink.set(sink);
    }

    async fn on_unregister(&self) {}

    async fn on_receive(
        &self,
        _source: Eid,
        _expiry: OffsetDateTime,
        _ack_requested: bool,
        payload: Bytes,
    ) -> services::Result<()> {
        self.put(&payload)
            .map_err(|error| services::Error::Internal(error.into()))
    }

    async fn on_status_notify(
        &self,
        _bundle_id: &Id,
        _from: &Eid,
        _kind: StatusNotify,
        _reason: ReasonCode,
        _timestamp: Option<OffsetDateTime>,
    ) {
    }
}

/// The service that sends each payload back.
#[derive(Default)]
struct Echo(OnceLock<Box<dyn ApplicationSink>>);

#[async_trait]
impl Application for Echo {
    async fn on_register(&self, _source: &Eid, sink: Box<dyn ApplicationSink>) {
        _ = self.0.set(sink);
    }

    async fn on_unregister(&self) {}

    async fn on_receive(
        &self,
        source: Eid,
        _expiry: OffsetDateTime,
        _ack_requested: bool,
        payload: Bytes,
    ) -> services::Result<()> {
        let sink = self.0.get().ok_or(services::Error::Disconnected)?;
        sink.send(source, payload, LIFETIME, None).await.map(|_| ())
    }

    async fn on_status_notify(
        &self,
        _bundle_id: &Id,
        _from: &Eid,
        _kind: StatusNotify,
        _reason: ReasonCode,
        _timestamp: Option<OffsetDateTime>,
    ) {
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let bpa = Bpa::builder()
        .node_ids(NodeIds::try_from([arguments.node].as_slice())?)
        .status_reports(true)
        .build()
        .await?;
    bpa.start(false);
    let folders = Arc::new(Folders {
        inbox: arguments.inbox,
        received: AtomicU64::new(0),
        sink: OnceLock::new(),
    });
    bpa.register_application(Service::Ipn(arguments.service), folders.clone())
        .await?;
    bpa.register_application(Service::Ipn(ECHO_SERVICE), Arc::new(Echo::default()))
        .await?;
    let tls = arguments.certificate.map(|certificate| TlsConfig {
        cert_file: Some(certificate),
        private_key_file: arguments.key,
        ca_certs: arguments.authorities,
        ..TlsConfig::default()
    });
    let cla = Cla::new(&Config {
        address: Some(arguments.listen),
        tls,
        ..Config::default()
    })?;
    bpa.register_cla("tcpclv4".to_owned(), Arc::new(cla), None)
        .await?;
    loop {
        folders.send_all(&arguments.outbox).await?;
        tokio::time::sleep(OUTBOX_INTERVAL).await;
    }
}
