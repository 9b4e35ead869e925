//! Bearer tokens of callers over TCP, and what they allow.

use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use underpass_edge::throttle::Throttle;

use super::problem::Problem;
use super::server::ApiError;
use crate::config::{ApiConfig, ApiRole};

/// Fewer could be guessed.
const LEAST_BYTES: usize = 16;

/// From where a connection has come, and whether a token that is known has come by it.
#[derive(Clone, Debug)]
pub struct Caller {
    address: IpAddr,
    identified: CancellationToken,
}

impl Caller {
    /// Who has connected from this address and presented nothing yet.
    pub fn new(address: IpAddr) -> Caller {
        Caller {
            address: address.to_canonical(),
            identified: CancellationToken::new(),
        }
    }

    /// A token of the caller's is known.
    pub fn identify(&self) {
        self.identified.cancel();
    }

    /// Waits until a token of the caller's was known.
    pub async fn identified(&self) {
        self.identified.cancelled().await;
    }
}

/// The caller of a request, for operators to read: `uid 1000`, or `token NAME`.
#[derive(Clone, Debug)]
pub struct Actor(Arc<str>);

impl Actor {
    /// Who is at the other end of the Unix socket.
    pub fn of(socket: &UnixStream) -> Actor {
        let name = match socket.peer_cred() {
            Ok(peer) => format!("uid {}", peer.uid()),
            Err(_) => "somebody at the socket".to_owned(),
        };
        Actor(name.into())
    }

    /// Who has presented a token of this name.
    pub fn with_token(name: &str) -> Actor {
        Actor(format!("token {name}").into())
    }
}

impl Deref for Actor {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The tokens that callers over TCP may present.
pub struct Tokens {
    known: Vec<Known>,
    failures: Mutex<Throttle>,
}

struct Known {
    name: String,
    role: ApiRole,
    digest: [u8; 32],
}

impl Tokens {
    /// The tokens of the configuration.
    ///
    /// # Errors
    /// When a file cannot be read, or holds no token of at least 16 bytes.
    pub fn load(config: &ApiConfig) -> Result<Tokens, ApiError> {
        let known = config.tokens.iter().map(|token| {
            let digest = match &token.file {
                Some(path) => read(path).map_err(|source| ApiError::Token {
                    name: token.name.clone(),
                    path: path.clone(),
                    source,
                })?,
                // `Config::of` has refused a text that is no digest.
                None => token.digest().unwrap_or_default(),
            };
            Ok(Known {
                name: token.name.clone(),
                role: token.role,
                digest,
            })
        });
        Ok(Tokens {
            known: known.collect::<Result<_, _>>()?,
            failures: Mutex::default(),
        })
    }

    /// The role and the name of the caller that presents `token`. The hashes of all tokens are
    /// compared in full, so that the time taken reveals nothing of a token.
    fn identify(&self, token: &str) -> Option<(ApiRole, &str)> {
        let presented = hashed(token.as_bytes());
        let mut found: Option<(ApiRole, &str)> = None;
        for known in &self.known {
            let same = bool::from(known.digest.ct_eq(&presented));
            if same && found.is_none_or(|(role, _)| role < known.role) {
                found = Some((known.role, &known.name));
            }
        }
        found
    }

    fn failures(&self) -> MutexGuard<'_, Throttle> {
        self.failures.lock().unwrap()
    }
}

fn read(path: &Path) -> io::Result<[u8; 32]> {
    let token = std::fs::read_to_string(path)?;
    let token = token.trim();
    if token.len() < LEAST_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the token must have at least 16 bytes",
        ));
    }
    Ok(hashed(token.as_bytes()))
}

fn hashed(token: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}

/// Lets callers with a token pass, with their role.
pub async fn identify(
    State(tokens): State<Arc<Tokens>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(connected) = request.extensions().get::<Caller>().cloned() else {
        return Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "a caller without address",
        )
        .into_response();
    };
    let (caller, now) = (connected.address, Instant::now());
    if let Some(wait) = tokens.failures().refused_for(caller, now) {
        return throttled(wait);
    }
    let presented = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match presented.map(|(_, token)| tokens.identify(token.trim())) {
        Some(Some((role, name))) => {
            connected.identify();
            let actor = Actor::with_token(name);
            request.extensions_mut().insert(role);
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
        // A caller without a token has not tried to guess one.
        None => unidentified("a bearer token is needed"),
        Some(None) => {
            tokens.failures().failed(caller, now);
            tracing::warn!(%caller, "a token that the local API does not know");
            unidentified("the token is not known here")
        }
    }
}

fn unidentified(detail: &str) -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (challenge, Problem::new(StatusCode::UNAUTHORIZED, detail)).into_response()
}

fn throttled(wait: Duration) -> Response {
    let seconds = wait.as_secs() + 1;
    let detail = format!("too many wrong tokens from this address: try again in {seconds} s");
    let retry = [(header::RETRY_AFTER, seconds.to_string())];
    (retry, Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)).into_response()
}

/// Lets callers of `least` and above pass.
pub async fn require(State(least): State<ApiRole>, request: Request, next: Next) -> Response {
    let role = request.extensions().get::<ApiRole>().copied();
    if role >= Some(least) {
        return next.run(request).await;
    }
    let role = role.map_or("none", ApiRole::name);
    let detail = format!(
        "this needs the role {}; the token's is {role}",
        least.name()
    );
    Problem::new(StatusCode::FORBIDDEN, detail).into_response()
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.known.iter().map(|known| &known.name);
        f.debug_list().entries(names).finish()
    }
}
