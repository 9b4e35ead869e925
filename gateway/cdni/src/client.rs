//! Fetches the documents over HTTP, one at a time.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{ACCEPT, AGE, CACHE_CONTROL, DATE, EXPIRES, HeaderMap, HeaderName};
use hyper::{Request, StatusCode, Uri};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig as TlsConfig, RootCertStore};
use thiserror::Error;
use tokio::sync::Notify;

use crate::document::MOST_DOCUMENT_BYTES;
use crate::metadata::{Figures, Metadata, Size};
use crate::words;

/// The media type of CDNI documents (RFC 8006, 7.1), and the type from servers that do
/// not know it.
const TYPES: &str = "application/cdni, application/json;q=0.9";

/// Where and how the metadata are fetched.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The HostIndex: `http(s)://HOST[:PORT]/PATH`.
    pub url: String,
    /// The file with the authorities that verify the server's certificate; none for the
    /// system's authorities.
    pub ca_file: Option<PathBuf>,
    /// The longest time that fetching a document may take.
    pub timeout: Duration,
}

/// Why a source cannot be asked at all.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ConfigError {
    #[error("cdni.url = {0:?}: must be http(s)://HOST[:PORT]/PATH, of the HostIndex")]
    Url(String),
    #[error("cdni.ca_file {path}: {reason}")]
    Authorities { path: PathBuf, reason: String },
    #[error("cdni.ca_file is not set, and the system has no authorities: {0}")]
    NoAuthorities(std::io::Error),
    #[error("TLS to the source of CDNI metadata: {0}")]
    Tls(#[from] rustls::Error),
}

/// One source of metadata.
#[derive(Debug)]
pub struct Client {
    metadata: Mutex<Metadata>,
    /// Signals that a document may be wanted.
    wanted: Notify,
    http: HttpClient<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    timeout: Duration,
}

impl Client {
    /// Prepares a client from its configuration.
    ///
    /// # Errors
    /// When the URL or the certificates cannot be used.
    pub fn new(config: &ClientConfig) -> Result<Client, ConfigError> {
        let uri = check(&config.url)?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(config.timeout));
        let tls = tls(config.ca_file.as_deref(), uri.scheme_str() == Some("https"))?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        Ok(Client {
            metadata: Mutex::new(Metadata::new(&config.url)),
            wanted: Notify::new(),
            http,
            timeout: config.timeout,
        })
    }

    /// The size of the object at `target` (a path with its query) of `host`, if it is
    /// known now. [`Self::run`] fetches documents that are missing.
    pub fn size_bytes(&self, host: &str, target: &str) -> Option<u64> {
        let size = self.metadata().size(Instant::now(), host, target);
        // Even if the size is known, a document may be about to expire.
        self.wanted.notify_one();
        match size {
            Size::Known(bytes) => Some(bytes),
            Size::Untold | Size::Awaited => None,
        }
    }

    /// The counts at present.
    pub fn figures(&self) -> Figures {
        self.metadata().figures()
    }

    /// Fetches the wanted documents until the future is dropped.
    pub async fn run(&self) {
        loop {
            let next = self.metadata().poll_wanted();
            let Some(url) = next else {
                self.wanted.notified().await;
                continue;
            };
            let reader = self.metadata().reader(&url);
            let got = tokio::time::timeout(self.timeout, self.get(&url)).await;
            let late = || format!("no answer within {} s", self.timeout.as_secs_f64());
            let got = got.unwrap_or_else(|_| Err(late()));
            // The document is parsed before the metadata are locked.
            let read = got.map(|(body, lifetime)| (reader.read(&body), lifetime));
            let now = Instant::now();
            match read {
                Ok((read, lifetime)) => self.metadata().fetched(now, &url, read, lifetime),
                Err(reason) => self.metadata().failed(now, &url, &reason),
            }
            if let Some(error) = self.figures().error {
                tracing::warn!(error, "CDNI metadata");
            }
        }
    }

    async fn get(&self, url: &str) -> Result<(Bytes, Option<Duration>), String> {
        let request = Request::get(url).header(ACCEPT, TYPES).body(Empty::new());
        let request = request.map_err(|error| words::of_address(&error))?;
        let answer = self.http.request(request).await;
        let answer = answer.map_err(|error| words::of_answer(&error))?;
        if answer.status() != StatusCode::OK {
            return Err(format!("the answer is {}", answer.status()));
        }
        let lifetime = lifetime(answer.headers());
        let body = Limited::new(answer.into_body(), MOST_DOCUMENT_BYTES);
        let body = body.collect().await;
        let body = body.map_err(|error| words::of_answer(&*error))?;
        Ok((body.to_bytes(), lifetime))
    }

    fn metadata(&self) -> MutexGuard<'_, Metadata> {
        self.metadata.lock().unwrap()
    }
}

/// How long an answer is fresh (RFC 9111, 4.2.1); none if its headers do not say.
fn lifetime(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // A list may come in several fields (RFC 9110, 5.3).
    let fields = headers.get_all(CACHE_CONTROL).iter();
    let fields: Vec<&str> = fields.filter_map(|value| value.to_str().ok()).collect();
    let directives = fields.join(",").to_ascii_lowercase();
    let seconds = |text: &str| text.trim_matches('"').parse().ok();
    let mut max_age: Option<u64> = None;
    for directive in directives.split(',').map(str::trim) {
        if matches!(directive, "no-store" | "no-cache") {
            return Some(Duration::ZERO);
        }
        max_age = max_age.or(directive.strip_prefix("max-age=").and_then(seconds));
    }
    if let Some(max_age) = max_age {
        let age = text(AGE).and_then(seconds).unwrap_or(0);
        return Some(Duration::from_secs(max_age.saturating_sub(age)));
    }
    let expires = text(EXPIRES)?;
    // An invalid date counts as past (RFC 9111, 5.3).
    let Ok(expires) = httpdate::parse_http_date(expires) else {
        return Some(Duration::ZERO);
    };
    let date = text(DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    let left = expires.duration_since(date.unwrap_or_else(SystemTime::now));
    Some(left.unwrap_or_default())
}

/// Checks that a URL can be that of a HostIndex.
///
/// # Errors
/// When it cannot be.
pub fn check(url: &str) -> Result<Uri, ConfigError> {
    let wrong = || ConfigError::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().is_some_and(|authority| {
        // Links are compared with the scheme and authority as they are written.
        !authority.as_str().contains('@') && !authority.as_str().is_empty()
    });
    let is_plain = !url.contains('#') && uri.path().starts_with('/');
    match scheme && authority && is_plain {
        true => Ok(uri),
        false => Err(wrong()),
    }
}

fn tls(ca_file: Option<&Path>, needed: bool) -> Result<TlsConfig, ConfigError> {
    let provider = rustls::crypto::ring::default_provider();
    let config = TlsConfig::builder_with_provider(provider.into());
    let config = config.with_safe_default_protocol_versions()?;
    let config = match ca_file {
        Some(path) => config.with_root_certificates(authorities(path)?),
        None if needed => config
            .with_native_roots()
            .map_err(ConfigError::NoAuthorities)?,
        None => config.with_root_certificates(RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}

fn authorities(path: &Path) -> Result<RootCertStore, ConfigError> {
    let failed = |reason: String| ConfigError::Authorities {
        path: path.to_owned(),
        reason,
    };
    let certificates = CertificateDer::pem_file_iter(path);
    let certificates = certificates.map_err(|error| failed(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = certificates.collect();
    let mut roots = RootCertStore::empty();
    let read = certificates.map_err(|error| failed(error.to_string()))?;
    let (added, _) = roots.add_parsable_certificates(read);
    match added {
        0 => Err(failed("holds no certificate".to_owned())),
        _ => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn client(url: &str) -> Client {
        let config = ClientConfig {
            url: url.to_owned(),
            ca_file: None,
            timeout: Duration::from_secs(60),
        };
        Client::new(&config).unwrap()
    }

    /// What is said of a server that answers so and then closes the connection.
    async fn said(answer: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/index", listener.local_addr().unwrap());
        let answered = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.read_u8().await.unwrap();
            // The client may have closed the connection before the end.
            let _ = socket.write_all(answer.as_bytes()).await;
            let _ = socket.shutdown().await;
            socket
        };
        let client = client(&url);
        let (got, _open) = tokio::join!(client.get(&url), answered);
        got.unwrap_err()
    }

    #[tokio::test]
    async fn each_way_not_to_answer_is_said_in_words() {
        let unanswered = "the server closed the connection before it answered";
        let head = format!("Content-Length: {}", MOST_DOCUMENT_BYTES + 1);
        let body = " ".repeat(MOST_DOCUMENT_BYTES + 1);
        let long = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
        for (answer, words) in [
            ("", unanswered),
            ("SSH-2.0-x\r\n\r\n", "the server's answer is no HTTP/1.1"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
                "the server closed the connection",
            ),
            (
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                "the answer is 404 Not Found",
            ),
            (long.as_str(), "it has more than 1048576 bytes"),
        ] {
            assert_eq!(said(answer).await, words);
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_said_to_refuse() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/index", listener.local_addr().unwrap());
        drop(listener);
        let error = client(&url).get(&url).await.unwrap_err();
        assert_eq!(error, "the server refused the connection");
    }

    #[test]
    fn a_lifetime_is_what_the_headers_leave_of_it() {
        let of = |fields: &[(&str, &str)]| {
            let field = |(name, value): &(&str, &str)| {
                let name: HeaderName = name.parse().unwrap();
                (name, value.parse().unwrap())
            };
            lifetime(&fields.iter().map(field).collect()).map(|left| left.as_secs())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("cache-control", "public, Max-Age=60")]), Some(60));
        assert_eq!(
            of(&[("cache-control", "max-age=60"), ("age", "45")]),
            Some(15)
        );
        assert_eq!(
            of(&[("cache-control", "max-age=60"), ("age", "90")]),
            Some(0)
        );
        assert_eq!(of(&[("cache-control", "max-age=60, no-store")]), Some(0));
        let several = [("cache-control", "public"), ("cache-control", "max-age=60")];
        assert_eq!(of(&several), Some(60));
        let several = [
            ("cache-control", "max-age=60"),
            ("cache-control", "no-store"),
        ];
        assert_eq!(of(&several), Some(0));
        assert_eq!(of(&[("expires", "0")]), Some(0));
        let dates = [
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("expires", "Sun, 06 Nov 1994 08:50:37 GMT"),
        ];
        assert_eq!(of(&dates), Some(60));
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        for wrong in [
            "",
            "index",
            "/index",
            "ftp://example/index",
            "http://user@example/index",
            "http://example/index#x",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        for right in ["http://example/index", "https://[::1]:8443/a/b?x=1"] {
            assert!(check(right).is_ok(), "{right}");
        }
    }
}
