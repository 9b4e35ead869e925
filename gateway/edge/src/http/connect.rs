//! CONNECT (RFC 9110 §9.3.6).

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::reply::{self, Body};
use super::{authority, server::Client};
use crate::config::Answer;
use crate::relay::{outcome, relay_logged};
use crate::stream::{Conduit, Protocol};

/// A connection that is a tunnel once its answer has been written.
pub(super) struct Tunnel {
    upgrade: OnUpgrade,
    conduit: Box<dyn Conduit>,
    target: String,
}

/// Opens the stream of a CONNECT and gives the answer to it.
pub(super) async fn connect<B>(client: &Client, mut request: Request<B>) -> Response<Body> {
    let Some(authority) = request.uri().authority() else {
        return reply::page(StatusCode::BAD_REQUEST, "CONNECT needs host:port");
    };
    let target = match authority::target(authority, None) {
        Ok(target) => target,
        Err(error) => return reply::page(StatusCode::BAD_REQUEST, &error),
    };
    let shown = target.to_string();
    let intake = &client.intake;
    let opened = intake.open(Protocol::HttpConnect, target, &client.peer, None);
    let opened = match opened {
        Ok(mut conduit) if intake.config.answer == Answer::AfterDial => {
            outcome(&mut conduit).await.map(|_| conduit)
        }
        opened => opened,
    };
    match opened {
        Ok(conduit) => {
            client.tunnel(Tunnel {
                upgrade: hyper::upgrade::on(&mut request),
                conduit,
                target: shown,
            });
            Response::new(reply::empty())
        }
        Err(failure) => {
            tracing::info!(listener = %intake.name, client = %client.peer.address,
                target = shown, %failure, "cannot connect");
            reply::failed(&failure)
        }
    }
}

impl Tunnel {
    /// Relays until the tunnel ends. Bytes that the client sent right behind
    /// its request are part of it.
    pub(super) async fn run(self, client: &Client) {
        let Ok(upgraded) = self.upgrade.await else {
            return;
        };
        let Ok(parts) = upgraded.downcast::<TokioIo<TcpStream>>() else {
            return;
        };
        let early: Bytes = parts.read_buf;
        relay_logged(
            &client.intake.name,
            client.peer.address,
            &self.target,
            parts.io.into_inner(),
            self.conduit,
            early,
        )
        .await;
    }
}
