//! Bearer tokens of callers over TCP.

use std::io;
use std::path::Path;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;

/// The token that callers over TCP must present.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Reads the token from its file.
    ///
    /// # Errors
    /// When the file cannot be read or holds no token of at least 16 bytes.
    pub fn read(path: &Path) -> io::Result<Token> {
        let token = std::fs::read_to_string(path)?.trim().to_owned();
        if token.len() < 16 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the token must have at least 16 bytes",
            ));
        }
        Ok(Token(token))
    }

    fn matches(&self, presented: &str) -> bool {
        // Every byte is compared, so that the time does not tell how many
        // were right.
        let (own, other) = (self.0.as_bytes(), presented.as_bytes());
        own.len() == other.len()
            && own
                .iter()
                .zip(other)
                .fold(0, |differences, (a, b)| differences | (a ^ b))
                == 0
    }
}

/// Lets callers with the token pass.
pub async fn require(State(token): State<Token>, request: Request, next: Next) -> Response {
    let presented = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    if presented.is_some_and(|presented| token.matches(presented)) {
        next.run(request).await
    } else {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "a bearer token is needed");
        (challenge, problem).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_matches() {
        let token = Token("0123456789abcdef".to_owned());
        assert!(token.matches("0123456789abcdef"));
        assert!(!token.matches("0123456789abcdeg"));
        assert!(!token.matches("0123456789abcde"));
        assert!(!token.matches(""));
    }
}
