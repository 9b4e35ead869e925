//! Serves SOCKS5 clients.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::wire::{Handshake, Output, reply};
use crate::config::Answer;
use crate::credentials::{Admission, THROTTLED};
use crate::listen::{Intake, Peer, leave};
use crate::relay::{abort, outcome_for};
use crate::stream::{Protocol, Target};
use crate::words;

/// Serves one client until its connection ends. A client that is refused is not waited for once
/// `stop` is cancelled.
pub(crate) async fn serve(
    intake: &Intake,
    mut socket: TcpStream,
    peer: Peer,
    stop: &CancellationToken,
) {
    let limit = intake.config.handshake_timeout();
    match timeout(limit, negotiate(intake, &mut socket, &peer)).await {
        Ok(Ok((target, early))) => {
            if let Some(refused) = connect(intake, socket, peer, target, early).await {
                leave(refused, stop).await;
            }
        }
        Ok(Err(reason)) => {
            intake.note_refusal(peer.address, &format!("SOCKS5 handshake: {reason}"));
            leave(socket, stop).await;
        }
        Err(_) => {
            intake.note_refusal(peer.address, "the SOCKS5 handshake timed out");
            abort(socket);
        }
    }
}

async fn negotiate(
    intake: &Intake,
    socket: &mut TcpStream,
    peer: &Peer,
) -> Result<(Target, Bytes), String> {
    let broken = |error: io::Error| words::of_socket("the client", &error);
    let mut handshake = Handshake::new(intake.users.is_some());
    let mut piece = [0; 512];
    loop {
        match handshake.poll_output() {
            Ok(Output::Send(message)) => {
                let sent = socket.write_all(&message).await;
                sent.map_err(broken)?;
            }
            Ok(Output::Judge { user, password }) => {
                let admission = match &intake.users {
                    Some(users) => users.admit(peer.address.ip(), &user, &password).await,
                    None => Admission::Refused,
                };
                let answer = match handshake.judge(admission == Admission::Admitted) {
                    Ok(message) => socket.write_all(&message).await.map_err(broken),
                    Err(error) => {
                        let _ = socket.write_all(&error.reply().unwrap_or_default()).await;
                        Err(match admission {
                            Admission::Throttled(_) => THROTTLED.to_owned(),
                            _ => error.to_string(),
                        })
                    }
                };
                answer?;
            }
            Ok(Output::Connect(target)) => return Ok((target, handshake.into_rest().into())),
            Ok(Output::Wait) => {
                let room = handshake.room().min(piece.len());
                match socket.read(&mut piece[..room]).await {
                    Ok(0) => return Err("the client closed the connection".into()),
                    Ok(count) => handshake.receive(&piece[..count]),
                    Err(error) => return Err(broken(error)),
                }
            }
            Err(error) => {
                if let Some(message) = error.reply() {
                    let _ = socket.write_all(&message).await;
                }
                return Err(error.to_string());
            }
        }
    }
}

/// Opens a client's stream and relays it to its end. Returns the socket of a client that has got a
/// refusal instead.
async fn connect(
    intake: &Intake,
    mut socket: TcpStream,
    peer: Peer,
    target: Target,
    early: Bytes,
) -> Option<TcpStream> {
    let began = Instant::now();
    let shown = target.to_string();
    let verdict = intake.classify(Protocol::Socks5, &target, &peer, None);
    let opened = intake.open(Protocol::Socks5, target, &peer, verdict, None);
    let answered = match opened {
        Err(failure) => Err(failure),
        Ok(conduit) if intake.config.answer == Answer::AtOnce => Ok((conduit, None)),
        Ok(mut conduit) => outcome_for(&socket, &mut conduit)
            .await
            .map(|connected| (conduit, connected.origin)),
    };
    match answered {
        Ok((conduit, origin)) => {
            if socket.write_all(&reply(Ok(origin))).await.is_ok() {
                intake
                    .relay(peer.address, &shown, socket, conduit, early)
                    .await;
            }
            None
        }
        Err(failure) => {
            intake.note_failure(began, peer.address, &shown, &failure);
            let _ = socket.write_all(&reply(Err(failure.code))).await;
            Some(socket)
        }
    }
}
