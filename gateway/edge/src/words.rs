//! What errors of the system and of libraries mean, in words for a person.
//!
//! Error pages, the reasons that a peer gets, and the log have these. The errors' own words are
//! logged at `debug`.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::iter::successors;

use hickory_resolver::net::{DnsError, NetError};

/// Why a server could not be connected to, by the error of connect(2).
pub(crate) fn of_connect(error: &io::Error) -> String {
    tracing::debug!(%error, "no connection to a server");
    let text = match error.kind() {
        ErrorKind::ConnectionRefused => "the server refused the connection",
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
            "the server reset the connection before it was made"
        }
        ErrorKind::TimedOut => "the server did not answer",
        ErrorKind::HostUnreachable => "no route to the server",
        ErrorKind::NetworkUnreachable => "no route to the server's network",
        ErrorKind::NetworkDown => "the network to the server is down",
        ErrorKind::PermissionDenied => "the host of the node that dials forbids the connection",
        ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable => {
            "the node that dials has no free port for the connection"
        }
        _ => return of_system(error),
    };
    text.to_owned()
}

/// How a connection broke, by an error of its socket; `end` is who is at its other end.
pub(crate) fn of_socket(end: &str, error: &io::Error) -> String {
    tracing::debug!(%error, end, "a connection broke");
    let what = match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => "reset the connection",
        ErrorKind::BrokenPipe
        | ErrorKind::NotConnected
        | ErrorKind::UnexpectedEof
        | ErrorKind::WriteZero => "closed the connection",
        ErrorKind::TimedOut => "no longer answers",
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            "can no longer be reached"
        }
        _ => return of_system(error),
    };
    format!("{end} {what}")
}

/// Any other error of the system: what it says, without its number.
pub(crate) fn of_system(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "too many files are open".to_owned(),
        Some(libc::ENOBUFS | libc::ENOMEM) => "memory is short".to_owned(),
        Some(number) => text.replace(&format!(" (os error {number})"), ""),
        None => text,
    }
}

/// Why no name server has told the addresses of a name.
pub(crate) fn of_lookup(error: &NetError) -> &'static str {
    tracing::debug!(%error, "a look-up failed");
    match error {
        NetError::Timeout => "no name server answered in time",
        NetError::Io(_) | NetError::NoConnections => "no name server can be reached",
        NetError::Dns(DnsError::ResponseCode(_)) => "the name server could not find out",
        _ => "the look-up failed",
    }
}

/// Why a server's answer has not come, or not whole, by the error of hyper's client. The head of an
/// answer may have `most_fields` fields.
pub(crate) fn of_answer(error: &hyper::Error, most_fields: usize) -> String {
    tracing::debug!(?error, "no whole answer of a server");
    let mut causes = successors(error.source(), |&cause| cause.source());
    if let Some(cause) = causes.find_map(|cause| cause.downcast_ref::<io::Error>()) {
        return match cause.kind() {
            // hyper's own, of a body's chunks.
            ErrorKind::InvalidData | ErrorKind::InvalidInput => {
                "the server's answer is malformed".to_owned()
            }
            _ => of_socket("the server", cause),
        };
    }
    if error.is_parse_too_large() {
        return format!(
            "the head of the server's answer is too long, or has more than {most_fields} fields"
        );
    }
    let text = if error.is_parse() {
        "the server's answer is no HTTP/1.1"
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "the server closed the connection before it answered"
    } else {
        "the server gave no answer"
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use hickory_resolver::proto::op::ResponseCode;
    use http_body_util::{BodyExt, Empty};
    use hyper::Request;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::relay::abort;

    fn of_number(number: i32) -> io::Error {
        io::Error::from_raw_os_error(number)
    }

    #[test]
    fn each_error_of_a_dial_is_said_in_words() {
        for (number, words) in [
            (libc::ECONNREFUSED, "the server refused the connection"),
            (
                libc::ECONNRESET,
                "the server reset the connection before it was made",
            ),
            (libc::ETIMEDOUT, "the server did not answer"),
            (libc::EHOSTUNREACH, "no route to the server"),
            (libc::ENETUNREACH, "no route to the server's network"),
            (libc::ENETDOWN, "the network to the server is down"),
            (
                libc::EPERM,
                "the host of the node that dials forbids the connection",
            ),
            (
                libc::EACCES,
                "the host of the node that dials forbids the connection",
            ),
            (
                libc::EADDRNOTAVAIL,
                "the node that dials has no free port for the connection",
            ),
            (libc::EMFILE, "too many files are open"),
            (libc::ENOBUFS, "memory is short"),
        ] {
            assert_eq!(of_connect(&of_number(number)), words);
        }
    }

    #[test]
    fn each_error_of_a_connection_is_said_in_words() {
        for (error, words) in [
            (
                of_number(libc::ECONNRESET),
                "the client reset the connection",
            ),
            (of_number(libc::EPIPE), "the client closed the connection"),
            (
                ErrorKind::UnexpectedEof.into(),
                "the client closed the connection",
            ),
            (of_number(libc::ETIMEDOUT), "the client no longer answers"),
            (
                of_number(libc::EHOSTUNREACH),
                "the client can no longer be reached",
            ),
        ] {
            assert_eq!(of_socket("the client", &error), words);
        }
    }

    #[test]
    fn an_error_without_words_of_ours_loses_its_number() {
        for number in [libc::EPROTO, libc::EINVAL, 12_345] {
            let text = of_system(&of_number(number));
            assert!(!text.is_empty() && !text.contains("os error"), "{text}");
        }
        assert_eq!(of_system(&io::Error::other("as it is")), "as it is");
    }

    #[test]
    fn each_error_of_a_look_up_is_said_in_words() {
        let refused = Arc::new(of_number(libc::ECONNREFUSED));
        for (error, words) in [
            (NetError::Timeout, "no name server answered in time"),
            (NetError::Io(refused), "no name server can be reached"),
            (NetError::NoConnections, "no name server can be reached"),
            (
                NetError::Dns(DnsError::ResponseCode(ResponseCode::ServFail)),
                "the name server could not find out",
            ),
            (NetError::Message("library's own"), "the look-up failed"),
        ] {
            assert_eq!(of_lookup(&error), words);
        }
    }

    /// What is said of a server that answers `answer`, if any, and then closes or resets the
    /// connection.
    async fn said(answer: &'static str, resets: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (mut far, _) = listener.accept().await.unwrap();
        let handshake = http1::Builder::new()
            .max_headers(2)
            .handshake(TokioIo::new(near.unwrap()));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let asked = async {
            let request = Request::new(Empty::<Bytes>::new());
            let response = sender.send_request(request).await?;
            response.into_body().collect().await.map(|_| ())
        };
        let answered = async move {
            far.read_u8().await.unwrap();
            if resets {
                abort(far);
                return None;
            }
            far.write_all(answer.as_bytes()).await.unwrap();
            far.shutdown().await.unwrap();
            // Bytes that are not read would make its drop a reset.
            Some(far)
        };
        let (asked, _open) = tokio::join!(asked, answered);
        of_answer(&asked.unwrap_err(), 2)
    }

    #[tokio::test]
    async fn each_way_not_to_answer_is_said_in_words() {
        let closed = "the server closed the connection";
        let unanswered = "the server closed the connection before it answered";
        let malformed = "the server's answer is malformed";
        let long = "the head of the server's answer is too long, or has more than 2 fields";
        for (answer, words) in [
            ("", unanswered),
            ("HTTP/1.1 200 OK\r\nA: b\r\n", unanswered),
            ("SSH-2.0-x\r\n\r\n", "the server's answer is no HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nA: b\r\nA: b\r\nA: b\r\n\r\n", long),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", closed),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n",
                malformed,
            ),
        ] {
            assert_eq!(said(answer, false).await, words, "{answer:?}");
        }
        assert_eq!(said("", true).await, "the server reset the connection");
    }
}
