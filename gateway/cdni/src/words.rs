//! What errors of the system and of libraries mean, in words for a person.
//!
//! The log and the status have these. The errors' own words are logged at `debug`.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::iter::successors;

use http_body_util::LengthLimitError;
use rustls::CertificateError;

use crate::document::DocumentError;

const UNANSWERED: &str = "the server gave no answer";

/// Why a document's address cannot be asked for.
pub(crate) fn of_address(error: &hyper::http::Error) -> String {
    tracing::debug!(%error, "no request for a CDNI document");
    "it is no address".to_owned()
}

/// Why a document has not come, or not whole, by the error of the HTTP client.
pub(crate) fn of_answer(error: &(dyn Error + 'static)) -> String {
    tracing::debug!(?error, "no whole CDNI document");
    if error.is::<LengthLimitError>() {
        return DocumentError::TooLong.to_string();
    }
    let causes = || successors(Some(error), |&cause| cause.source());
    if let Some(cause) = causes().find_map(|cause| cause.downcast_ref::<io::Error>()) {
        return of_connection(cause);
    }
    let of_http = causes().find_map(|cause| cause.downcast_ref::<hyper::Error>());
    of_http.map_or(UNANSWERED, of_exchange).to_owned()
}

fn of_exchange(error: &hyper::Error) -> &'static str {
    if error.is_parse_too_large() {
        "the head of the server's answer is too long"
    } else if error.is_parse() {
        "the server's answer is no HTTP/1.1"
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "the server closed the connection before it answered"
    } else {
        UNANSWERED
    }
}

fn of_connection(error: &io::Error) -> String {
    let inner = error.get_ref();
    if let Some(inner) = inner.and_then(|inner| inner.downcast_ref::<io::Error>()) {
        return of_connection(inner);
    }
    if let Some(inner) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return of_tls(inner).to_owned();
    }
    let text = match error.kind() {
        ErrorKind::ConnectionRefused => "the server refused the connection",
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
            "the server reset the connection"
        }
        ErrorKind::BrokenPipe
        | ErrorKind::NotConnected
        | ErrorKind::UnexpectedEof
        | ErrorKind::WriteZero => "the server closed the connection",
        ErrorKind::TimedOut => "the server did not answer",
        ErrorKind::HostUnreachable => "no route to the server",
        ErrorKind::NetworkUnreachable => "no route to the server's network",
        ErrorKind::NetworkDown => "the network to the server is down",
        ErrorKind::PermissionDenied => "this host forbids the connection",
        // hyper's own, of a body's chunks.
        ErrorKind::InvalidData | ErrorKind::InvalidInput => "the server's answer is malformed",
        _ => return of_system(error),
    };
    text.to_owned()
}

/// What TLS has against the server.
fn of_tls(error: &rustls::Error) -> &'static str {
    let rustls::Error::InvalidCertificate(fault) = error else {
        return "TLS with the server failed";
    };
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is not for its name"
        }
        CertificateError::UnknownIssuer => {
            "the server's certificate is signed by no authority that is trusted (cdni.ca_file)"
        }
        _ => "the server's certificate is not valid",
    }
}

/// Any other error of the system: what it says, without its number.
fn of_system(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.replace(&format!(" (os error {number})"), ""),
        // As std says it for getaddrinfo(3).
        None if text.starts_with("failed to lookup address information") => {
            "the server's name could not be resolved".to_owned()
        }
        None => "the connection to the server failed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_a_connection_is_said_in_words() {
        let lookup = "failed to lookup address information: Name or service not known";
        let reset = io::Error::from(ErrorKind::ConnectionReset);
        let late = io::Error::new(ErrorKind::TimedOut, "deadline has elapsed");
        for (error, words) in [
            (io::Error::other(reset), "the server reset the connection"),
            (late, "the server did not answer"),
            (
                io::Error::other(lookup),
                "the server's name could not be resolved",
            ),
            (
                ErrorKind::UnexpectedEof.into(),
                "the server closed the connection",
            ),
            (ErrorKind::HostUnreachable.into(), "no route to the server"),
            (
                io::Error::other("library's own"),
                "the connection to the server failed",
            ),
        ] {
            assert_eq!(of_answer(&error), words);
        }
        let other = of_answer(&io::Error::from_raw_os_error(71));
        assert!(!other.is_empty() && !other.contains("os error"), "{other}");
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_said_in_words() {
        for (fault, words) in [
            (CertificateError::Expired, "has expired"),
            (CertificateError::NotValidYet, "is not valid yet"),
            (CertificateError::NotValidForName, "is not for its name"),
            (CertificateError::UnknownIssuer, "(cdni.ca_file)"),
            (CertificateError::BadSignature, "is not valid"),
        ] {
            // As the connector gives it.
            let fault = rustls::Error::InvalidCertificate(fault);
            let error = io::Error::new(ErrorKind::InvalidData, fault);
            let said = of_answer(&io::Error::other(error));
            let whole = said.starts_with("the server's certificate ") && said.ends_with(words);
            assert!(whole, "{said}");
        }
        let error = io::Error::other(rustls::Error::HandshakeNotComplete);
        assert_eq!(of_answer(&error), "TLS with the server failed");
    }
}
