//! The node's own page, for a user beside it with a browser.
//!
//! Its files contain nothing of this node, and anybody gets them. The page gets what it shows from
//! the API, with the token that its user enters, in a header. A browser never adds that header by
//! itself, so other sites cannot act in the user's name.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::not_allowed;

/// Only files of this server, nothing inline; no other site may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Where each file is, its kind and its text.
const FILES: [(&str, &str, &str); 6] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page.css", CSS, include_str!("page/page.css")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/chart.js", SCRIPT, include_str!("page/chart.js")),
    ("/figures.js", SCRIPT, include_str!("page/figures.js")),
    ("/speed.js", SCRIPT, include_str!("page/speed.js")),
];

/// Serves the page, and everything else by `api`.
pub fn before(api: Router) -> Router {
    let router = FILES.into_iter().fold(Router::new(), |router, file| {
        let (path, kind, text) = file;
        router.route(path, get(async move || served(kind, text)))
    });
    let refused = async |method: Method, uri: Uri| not_allowed(method, uri).await;
    router
        .method_not_allowed_fallback(refused)
        .fallback_service(api)
}

fn served(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers: [(HeaderName, &str); 6] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // The next version's files belong together too.
        (header::CACHE_CONTROL, "no-cache"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
    (headers, text)
}
