//! Errors as problem details (RFC 9457), from handlers and extractors alike.

use std::error::Error;

use axum::extract::path::ErrorKind;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{self, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::plain;

/// Why a request is not served.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    /// A problem with a text that says what to do.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem {
            status,
            detail: detail.into(),
        }
    }

    /// What the path or body names does not exist.
    pub fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, detail)
    }

    /// A value that is understood and cannot be.
    pub fn invalid(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // Without a type the status says what kind of problem it is
        // (RFC 9457 § 4.2.1).
        let body = json!({
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        (self.status, kind, body.to_string()).into_response()
    }
}

/// What serde says behind axum's own words.
fn said(rejection: &dyn Error) -> String {
    rejection
        .source()
        .map(ToString::to_string)
        .unwrap_or_default()
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Problem {
        let status = rejection.status();
        let detail = match &rejection {
            JsonRejection::JsonDataError(error) => plain::value(&said(error)),
            JsonRejection::JsonSyntaxError(error) => plain::syntax(&said(error)),
            JsonRejection::MissingJsonContentType(_) => {
                "a body needs the header Content-Type: application/json".to_owned()
            }
            _ if status == StatusCode::PAYLOAD_TOO_LARGE => {
                "the body is longer than this route takes".to_owned()
            }
            _ => "the body is malformed, or broke off before its end".to_owned(),
        };
        Problem::new(status, detail)
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Problem {
        let detail = match &rejection {
            QueryRejection::FailedToDeserializeQueryString(error) => plain::value(&said(error)),
            _ => rejection.body_text(),
        };
        Problem::new(rejection.status(), detail)
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Problem {
        let kind = match &rejection {
            PathRejection::FailedToDeserializePathParams(error) => Some(error.kind()),
            _ => None,
        };
        let detail = match kind {
            Some(
                ErrorKind::ParseError {
                    value,
                    expected_type,
                }
                | ErrorKind::ParseErrorAtIndex {
                    value,
                    expected_type,
                    ..
                }
                | ErrorKind::ParseErrorAtKey {
                    value,
                    expected_type,
                    ..
                },
            ) => format!(
                "{value:?} in the path must be {}",
                plain::kind(expected_type)
            ),
            Some(ErrorKind::DeserializeError { value, message, .. }) => {
                format!("{value:?} in the path: {message}")
            }
            _ => rejection.body_text(),
        };
        Problem::new(rejection.status(), detail)
    }
}

#[derive(Debug)]
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let axum::Json(value) = axum::Json::from_request(request, state).await?;
        Ok(Json(value))
    }
}

#[derive(Debug)]
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let extract::Path(value) = extract::Path::from_request_parts(parts, state).await?;
        Ok(Path(value))
    }
}

#[derive(Debug)]
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let extract::Query(value) = extract::Query::from_request_parts(parts, state).await?;
        Ok(Query(value))
    }
}
