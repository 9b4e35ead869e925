//! The control service over HTTP: requests with this node's token, over TLS
//! where the address says so.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::iter::successors;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thiserror::Error;

use crate::trust::Trust;

/// The service's address, and this node's credentials for it.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Its address: `https://HOST[:PORT][/PREFIX]` or `http://…`.
    pub url: String,
    /// The file with the token; none for what needs no token.
    pub token_file: Option<PathBuf>,
    /// By what its certificate is judged.
    pub trust: Trust,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// Why the service cannot be asked at all.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ConfigError {
    #[error("{0:?} is no address of a control service: must be https://HOST[:PORT][/PREFIX]")]
    Url(String),
    #[error("control.token_file {path}: {reason}")]
    Token { path: PathBuf, reason: String },
    #[error("ca_file {path}: {reason}")]
    Authorities { path: PathBuf, reason: String },
    #[error("ca_file is not set, and the system has no authorities: {0}")]
    NoAuthorities(std::io::Error),
    #[error("TLS to the control service: {0}")]
    Tls(#[from] rustls::Error),
}

/// Why a request has come to nothing.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ServiceError {
    /// The token cannot be read any more.
    #[error(transparent)]
    Token(ConfigError),
    /// The service cannot be reached, or the exchange broke off.
    #[error("{0}")]
    Lost(String),
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the answer is not understood: {0}")]
    Answer(String),
    #[error("{status}: {detail}")]
    Status { status: StatusCode, detail: String },
}

/// The control service, as this node reaches it.
#[derive(Debug)]
pub struct Service {
    config: ServiceConfig,
    /// Before each path: scheme, authority and prefix.
    base: String,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// The longest error text that is read, bytes.
const MAX_PROBLEM_BYTES: usize = 16 << 10;

impl Service {
    /// Reads what the configuration names.
    ///
    /// # Errors
    /// When the address, the token or the certificates cannot be used.
    pub fn new(config: ServiceConfig) -> Result<Service, ConfigError> {
        let base = base(&config.url).ok_or_else(|| ConfigError::Url(config.url.clone()))?;
        if let Some(path) = &config.token_file {
            authorization(path)?;
        }
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(config.timeout));
        // A stream that is silent for good must end.
        http.set_keepalive(Some(Duration::from_secs(30)));
        let tls = config.trust.client_config(base.starts_with("https"))?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .build(connector);
        Ok(Service {
            config,
            base,
            client,
        })
    }

    /// Posts JSON; the body of the answer, which has at most `most` bytes.
    ///
    /// # Errors
    /// When there is no answer, or another one than 200.
    pub async fn post(&self, path: &str, body: String, most: usize) -> Result<Bytes, ServiceError> {
        let json = "application/json";
        self.send(path, json, body.into(), None, most).await
    }

    /// Posts a body of this media type, within the trace that `traceparent`
    /// names; the body of the answer, which has at most `most` bytes.
    ///
    /// # Errors
    /// When there is no answer, or another one than 200.
    pub async fn send(
        &self,
        path: &str,
        media_type: &str,
        body: Bytes,
        traceparent: Option<&str>,
        most: usize,
    ) -> Result<Bytes, ServiceError> {
        let mut request = self
            .request(Method::POST, path)?
            .header(CONTENT_TYPE, media_type);
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        let request = request.body(Full::from(body));
        let timeout = self.config.timeout;
        let exchange = async {
            let answer = self.exchange(request).await?;
            whole(answer.into_body(), most).await
        };
        let answer = tokio::time::timeout(timeout, exchange).await;
        answer.map_err(|_| ServiceError::Late(timeout))?
    }

    /// Gets the content of a path, at most `most` bytes; none if it still has `tag`. Also returns
    /// its present tag.
    ///
    /// # Errors
    /// When there is no answer, or another one than 200 and 304.
    pub async fn get(
        &self,
        path: &str,
        tag: Option<&HeaderValue>,
        most: usize,
    ) -> Result<Option<(Bytes, Option<HeaderValue>)>, ServiceError> {
        let mut request = self.request(Method::GET, path)?;
        if let Some(tag) = tag {
            request = request.header(IF_NONE_MATCH, tag);
        }
        let request = request.body(Full::default());
        let timeout = self.config.timeout;
        let exchange = async {
            let answer = match self.exchange(request).await {
                Err(ServiceError::Status { status, .. }) if status == StatusCode::NOT_MODIFIED => {
                    return Ok(None);
                }
                answer => answer?,
            };
            let tag = answer.headers().get(ETAG).cloned();
            let body = whole(answer.into_body(), most).await?;
            Ok(Some((body, tag)))
        };
        let answer = tokio::time::timeout(timeout, exchange).await;
        answer.map_err(|_| ServiceError::Late(timeout))?
    }

    /// Opens a stream of events, after the one with this id.
    ///
    /// # Errors
    /// When there is no answer, or it is no such stream.
    pub async fn events(&self, path: &str, after: Option<&str>) -> Result<Incoming, ServiceError> {
        const STREAM: &str = "text/event-stream";
        let mut request = self.request(Method::GET, path)?.header(ACCEPT, STREAM);
        if let Some(id) = after.and_then(|id| HeaderValue::from_str(id).ok()) {
            request = request.header("Last-Event-ID", id);
        }
        let request = request.body(Full::default());
        let timeout = self.config.timeout;
        let answer = tokio::time::timeout(timeout, self.exchange(request)).await;
        let answer = answer.map_err(|_| ServiceError::Late(timeout))??;
        let kind = answer.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with(STREAM) {
            return Err(ServiceError::Answer(format!("{kind:?} is no {STREAM}")));
        }
        Ok(answer.into_body())
    }

    fn request(
        &self,
        method: Method,
        path: &str,
    ) -> Result<hyper::http::request::Builder, ServiceError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        let Some(file) = &self.config.token_file else {
            return Ok(request);
        };
        // Read again each time: a token may be replaced while the node runs.
        let token = authorization(file).map_err(ServiceError::Token)?;
        Ok(request.header(AUTHORIZATION, token))
    }

    async fn exchange(
        &self,
        request: hyper::http::Result<Request<Full<Bytes>>>,
    ) -> Result<Response<Incoming>, ServiceError> {
        let request = request.map_err(|error| ServiceError::Lost(error.to_string()))?;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| ServiceError::Lost(told(&error)))?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let body = whole(answer.into_body(), MAX_PROBLEM_BYTES).await;
        let detail = body.map(|body| detail(&body)).unwrap_or_default();
        Err(ServiceError::Status { status, detail })
    }
}

/// The authority and prefix of an address, without a slash behind.
fn base(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri
        .scheme_str()
        .filter(|s| matches!(*s, "http" | "https"))?;
    let prefix = uri.path().trim_end_matches('/');
    Some(format!("{scheme}://{}{prefix}", uri.authority()?))
}

/// Reads a token of the control service from a file.
///
/// # Errors
/// Why it cannot be read, without the name of the file.
pub fn read_token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err("must hold the token, in one line".to_owned());
    }
    Ok(token.to_owned())
}

/// What a request says to be let in.
fn authorization(token_file: &Path) -> Result<HeaderValue, ConfigError> {
    let failed = |reason: String| ConfigError::Token {
        path: token_file.to_owned(),
        reason,
    };
    let token = read_token(token_file).map_err(failed)?;
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header = header.map_err(|error| failed(error.to_string()))?;
    header.set_sensitive(true);
    Ok(header)
}

async fn whole(body: Incoming, most: usize) -> Result<Bytes, ServiceError> {
    match Limited::new(body, most).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ServiceError::Answer(format!(
            "it has more than {most} bytes"
        ))),
        Err(error) => Err(ServiceError::Lost(told(&*error))),
    }
}

/// The detail of a problem document (RFC 9457), or the text that there is instead.
fn detail(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Document {
        detail: String,
    }
    match serde_json::from_slice::<Document>(body) {
        Ok(document) => document.detail,
        Err(_) => String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned(),
    }
}

/// An error with its causes, in words for a person; the libraries' own are logged at `debug`.
pub(crate) fn told(error: &(dyn Error + 'static)) -> String {
    tracing::debug!(?error, "no answer of the control service");
    let mut text = String::new();
    for cause in successors(Some(error), |&cause| cause.source()) {
        match words(cause) {
            Some(next) if text.is_empty() => text = next,
            Some(next) if !text.contains(&next) => text = format!("{text}: {next}"),
            _ => {}
        }
    }
    text
}

/// What one of the causes says, unless it only names a layer in which the next one lies.
fn words(cause: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return Some(words_of_io(error));
    }
    let of_http = cause.downcast_ref::<hyper::Error>();
    if of_http.is_some_and(|e| e.is_incomplete_message() || e.is_canceled() || e.is_closed()) {
        return Some("the server closed the connection before it answered".to_owned());
    }
    let text = cause.to_string();
    let is_layer = of_http.is_some()
        || cause.is::<legacy::Error>()
        || matches!(text.as_str(), "dns error" | "tcp connect error");
    (!is_layer || cause.source().is_none()).then_some(text)
}

fn words_of_io(error: &io::Error) -> String {
    let inner = error.get_ref();
    if let Some(inner) = inner.and_then(|inner| inner.downcast_ref::<io::Error>()) {
        return words_of_io(inner);
    }
    let text = error.to_string();
    // As std says it for getaddrinfo(3).
    if text.starts_with("failed to lookup address information") {
        return "its name could not be resolved".to_owned();
    }
    let known = match error.kind() {
        ErrorKind::ConnectionRefused => "the server refused the connection",
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
            "the server reset the connection"
        }
        ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => "the server closed the connection",
        ErrorKind::TimedOut => "the server did not answer",
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => "no route to the server",
        ErrorKind::NetworkDown => "the network to the server is down",
        _ => match error.raw_os_error() {
            Some(number) => return text.replace(&format!(" (os error {number})"), ""),
            None => return text,
        },
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_service_that_does_not_answer_is_told_of_in_words() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = Service::new(ServiceConfig {
            url: format!("http://{}", listener.local_addr().unwrap()),
            token_file: None,
            trust: Trust::System,
            timeout: Duration::from_secs(60),
        });
        let service = service.unwrap();
        let closes = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.read_u8().await.unwrap();
            socket.shutdown().await.unwrap();
            socket
        };
        let asked = service.post("/", String::new(), 1000);
        let (answer, _open) = tokio::join!(asked, closes);
        assert_eq!(
            answer.unwrap_err().to_string(),
            "the server closed the connection before it answered"
        );
        drop(listener);
        let answer = service.post("/", String::new(), 1000).await;
        let error = answer.unwrap_err().to_string();
        assert_eq!(error, "the server refused the connection");
    }

    #[test]
    fn each_error_of_a_connection_is_told_in_words() {
        let lookup = "failed to lookup address information: Name or service not known";
        let reset = io::Error::from(ErrorKind::ConnectionReset);
        for (error, expected) in [
            (io::Error::other(reset), "the server reset the connection"),
            (io::Error::other(lookup), "its name could not be resolved"),
            (
                ErrorKind::UnexpectedEof.into(),
                "the server closed the connection",
            ),
            (ErrorKind::TimedOut.into(), "the server did not answer"),
            (ErrorKind::HostUnreachable.into(), "no route to the server"),
            (
                ErrorKind::NetworkDown.into(),
                "the network to the server is down",
            ),
            (
                io::Error::other("invalid peer certificate"),
                "invalid peer certificate",
            ),
        ] {
            assert_eq!(told(&error), expected);
        }
        assert!(!told(&io::Error::from_raw_os_error(71)).contains("os error"));
    }

    #[test]
    fn address_keeps_its_prefix_and_loses_the_slash_behind() {
        let cases = [
            ("https://control.example", "https://control.example"),
            ("http://[::1]:8480/", "http://[::1]:8480"),
            ("https://example/under/pass/", "https://example/under/pass"),
        ];
        for (url, expected) in cases {
            assert_eq!(base(url).as_deref(), Some(expected));
        }
        for wrong in ["control.example", "ftp://example", "/v1", ""] {
            assert_eq!(base(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let config = |token_file: PathBuf, ca_file: Option<PathBuf>| ServiceConfig {
            url: "https://control.example".to_owned(),
            token_file: Some(token_file),
            trust: ca_file.map_or(Trust::System, Trust::File),
            timeout: Duration::from_secs(1),
        };
        let token = file("token", "secret\n");
        let refused = |config| Service::new(config).unwrap_err().to_string();
        let missing = refused(config(folder.path().join("none"), None));
        assert!(missing.contains("control.token_file"), "{missing}");
        for wrong in ["", "two words", "two\nlines"] {
            let told = refused(config(file("wrong", wrong), None));
            assert!(told.contains("in one line"), "{told}");
        }
        for wrong in [
            "",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let told = refused(config(token.clone(), Some(file("ca.pem", wrong))));
            assert!(told.contains("ca_file"), "{told}");
        }
        let error = refused(ServiceConfig {
            url: "control.example".to_owned(),
            ..config(token, None)
        });
        assert!(error.contains("no address"), "{error}");
    }
}
