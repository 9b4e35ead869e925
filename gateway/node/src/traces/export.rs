//! Sends spans to a collector (OTLP over HTTP), from a bounded queue and on its own thread, so that
//! a slow or missing collector delays nothing. Spans that find no room are counted, and a batch
//! that the collector does not take is dropped.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter as Otlp, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor,
};
use thiserror::Error;
use tokio::runtime::Runtime;
use underpass_control_client::{ConfigError, Service, ServiceConfig, Trust};

use crate::config::TracesConfig;

/// Spans that wait at most.
const QUEUE: usize = 2048;
/// Spans of one request.
const BATCH: usize = 512;
/// How often what waits is sent.
const EVERY: Duration = Duration::from_secs(1);
/// How long the end of the node waits for a collector.
const LAST: Duration = Duration::from_secs(2);
/// Where a collector takes traces, behind its address (OTLP, *Endpoint URLs*).
const PATH: &str = "/v1/traces";
/// The longest answer that is read, bytes.
const MOST_ANSWER_BYTES: usize = 64 << 10;

/// Why nothing can be exported.
#[derive(Debug, Error)]
pub enum ExportError {
    /// What the configuration names cannot be used.
    #[error("[traces]: {0}")]
    Config(#[from] ConfigError),
    /// There is no thread or descriptor for it.
    #[error("[traces]: {0}")]
    Runtime(#[from] std::io::Error),
    /// The exporter cannot be made.
    #[error("[traces]: {0}")]
    Exporter(String),
}

/// What has become of spans.
#[derive(Debug, Default)]
pub struct Counts {
    /// That were made.
    pub made: AtomicU64,
    /// That the collector has taken.
    pub exported: AtomicU64,
    /// Of batches that it has not taken.
    pub failed: AtomicU64,
}

/// Sends spans to a collector.
#[derive(Debug)]
pub struct Export {
    processor: BatchSpanProcessor,
    counts: Arc<Counts>,
}

impl Export {
    /// Begins, without contacting the collector yet.
    ///
    /// # Errors
    /// When its address or certificates cannot be used.
    pub fn start(config: &TracesConfig, node: u64, role: &str) -> Result<Export, ExportError> {
        let timeout = Duration::from_secs(config.timeout_s);
        let service = Service::new(ServiceConfig {
            url: config.url.clone(),
            token_file: None,
            trust: config.ca_file.clone().map_or(Trust::System, Trust::File),
            timeout,
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = Client {
            service,
            runtime: std::sync::Mutex::new(Some(runtime)),
        };
        let otlp = Otlp::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(format!("{}{PATH}", config.url.trim_end_matches('/')))
            .with_timeout(timeout)
            .build()
            .map_err(|error| ExportError::Exporter(error.to_string()))?;
        let counts = Arc::<Counts>::default();
        let counting = Counting {
            otlp,
            counts: counts.clone(),
            failing: AtomicBool::new(false),
        };
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(EVERY)
            .build();
        let mut processor = BatchSpanProcessor::new(counting, batches);
        let resource = Resource::builder_empty()
            .with_service_name(format!("underpass-{role}"))
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", node.to_string()),
            ])
            .build();
        processor.set_resource(&resource);
        Ok(Export { processor, counts })
    }

    /// Takes a span that is over. It never waits.
    pub fn take(&self, span: SpanData) {
        self.counts.made.fetch_add(1, Ordering::Relaxed);
        self.processor.on_end(span);
    }

    /// What has become of spans.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Sends the waiting spans, if the collector takes them soon.
    pub fn finish(&self) {
        if self.processor.shutdown_with_timeout(LAST).is_err() {
            tracing::warn!("the last spans could not be sent to the collector");
        }
    }
}

/// Counts what the collector takes, and logs when it stops or starts taking spans.
#[derive(Debug)]
struct Counting {
    otlp: Otlp,
    counts: Arc<Counts>,
    failing: AtomicBool,
}

impl SpanExporter for Counting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let exported = self.otlp.export(batch).await;
        let was = self.failing.swap(exported.is_err(), Ordering::Relaxed);
        match &exported {
            Ok(()) => {
                self.counts.exported.fetch_add(spans, Ordering::Relaxed);
                if was {
                    tracing::info!("the collector of traces takes spans again");
                }
            }
            Err(error) => {
                self.counts.failed.fetch_add(spans, Ordering::Relaxed);
                if !was {
                    tracing::warn!(%error, "the collector of traces takes no spans");
                }
            }
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> Result<(), OTelSdkError> {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}

/// The HTTP client of the exporter's thread. Only that thread drives it, not the node's own
/// runtime.
struct Client {
    service: Service,
    /// A runtime must not be dropped inside another one, and the last client may be dropped there.
    runtime: std::sync::Mutex<Option<Runtime>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let runtime = self.runtime.get_mut();
        if let Some(runtime) = runtime.ok().and_then(Option::take) {
            runtime.shutdown_background();
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let runtime = self.runtime.lock().unwrap();
        let runtime = runtime.as_ref().ok_or("the node ends")?;
        let send = self.service.send(
            PATH,
            "application/x-protobuf",
            request.into_body(),
            None,
            MOST_ANSWER_BYTES,
        );
        Ok(Response::new(runtime.block_on(send)?))
    }
}
