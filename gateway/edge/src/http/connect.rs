//! CONNECT (RFC 9110 §9.3.6).

use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use tokio::time::Instant;

use super::reply::{self, Body};
use super::server::Client;
use super::tunnel::{Far, Tunnel};
use super::{TRACEPARENT, authority};
use crate::config::Answer;
use crate::relay::outcome;
use crate::stream::Protocol;

/// Opens the stream of a CONNECT and gives the answer to it.
pub(super) async fn connect(client: &Client, mut request: Request<Incoming>) -> Response<Body> {
    let Some(authority) = request.uri().authority() else {
        return reply::page(StatusCode::BAD_REQUEST, "CONNECT needs host:port");
    };
    let target = match authority::target(authority, None) {
        Ok(target) => target,
        Err(error) => return reply::page(StatusCode::BAD_REQUEST, &error),
    };
    let began = Instant::now();
    let shown = target.to_string();
    let intake = &client.intake;
    let verdict = intake.classify(Protocol::HttpConnect, &target, &client.peer, None);
    let traceparent = request.headers().get(TRACEPARENT);
    let (protocol, peer) = (Protocol::HttpConnect, &client.peer);
    let opened = match intake.open(protocol, target, peer, verdict, traceparent) {
        Ok(mut conduit) if intake.config.answer == Answer::AfterDial => {
            outcome(&mut conduit).await.map(|_| conduit)
        }
        opened => opened,
    };
    match opened {
        Ok(conduit) => {
            client.tunnel(Tunnel {
                near: hyper::upgrade::on(&mut request),
                far: Far::Conduit(conduit),
                target: shown,
            });
            Response::new(reply::empty())
        }
        Err(failure) => {
            let address = client.peer.address;
            intake.note_failure(began, address, &shown, &failure);
            reply::failed(&failure)
        }
    }
}
