//! The server's side of the handshake, without I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::stream::{FailureCode, HostError, Target};

/// The longest message of the handshake: RFC 1929's 1+1+255+1+255 octets.
const LONGEST_MESSAGE: usize = 513;

const VERSION: u8 = 5;
const METHOD_NONE: u8 = 0;
const METHOD_PASSWORD: u8 = 2;
const METHOD_UNACCEPTABLE: u8 = 0xff;
/// RFC 1929's subnegotiation has a version of its own.
const PASSWORD_VERSION: u8 = 1;
const COMMAND_CONNECT: u8 = 1;

/// What the handshake wants done.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing before more bytes have come.
    Wait,
    /// These bytes are to be sent.
    Send(Vec<u8>),
    /// The client has given user and password: the caller tells [`Handshake::judge`] whether it may
    /// enter.
    Judge {
        /// Its name.
        user: Vec<u8>,
        /// Its password.
        password: Vec<u8>,
    },
    /// The client asks for a connection; [`reply`] answers it. Bytes that the
    /// client has sent after its request are in [`Handshake::into_rest`].
    Connect(Target),
}

/// A client that does not keep to the protocol, or is not let in.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SocksError {
    /// The first octet of a message is no version we speak.
    #[error("version {0} where 5 was expected; is the client speaking SOCKS5?")]
    Version(u8),
    /// The subnegotiation's version is not 1.
    #[error("user/password subnegotiation of version {0}")]
    PasswordVersion(u8),
    /// The client offers no method that the listener accepts.
    #[error("the client offers no acceptable authentication method")]
    Methods,
    /// Wrong user or password.
    #[error("user or password refused")]
    Credentials,
    /// BIND, UDP ASSOCIATE or an unknown command.
    #[error("command {0} is not supported, only CONNECT is")]
    Command(u8),
    /// An address type that RFC 1928 does not know.
    #[error("address type {0} is not supported")]
    AddressType(u8),
    /// A domain name that is none.
    #[error("bad destination name: {0}")]
    Name(#[from] HostError),
    /// A domain name that is not even ASCII.
    #[error("the destination name is not ASCII")]
    NotAscii,
}

impl SocksError {
    /// What the client is sent before the connection is closed.
    pub fn reply(&self) -> Option<Vec<u8>> {
        match self {
            SocksError::Version(_) | SocksError::PasswordVersion(_) => None,
            SocksError::Methods => Some(vec![VERSION, METHOD_UNACCEPTABLE]),
            SocksError::Credentials => Some(vec![PASSWORD_VERSION, 1]),
            SocksError::Command(_) => Some(reply_message(7, None)),
            SocksError::AddressType(_) => Some(reply_message(8, None)),
            // A name that no resolver could know counts as an unknown one.
            SocksError::Name(_) | SocksError::NotAscii => {
                Some(reply(Err(FailureCode::UnknownHost)))
            }
        }
    }
}

/// The answer to a request: RFC 1928 §6. `bound` is sent as BND.ADDR, zeros if it is unknown.
pub fn reply(outcome: Result<Option<SocketAddr>, FailureCode>) -> Vec<u8> {
    match outcome {
        Ok(bound) => reply_message(0, bound),
        Err(code) => {
            let number = match code {
                FailureCode::Forbidden => 2,
                FailureCode::Unreachable | FailureCode::Unavailable => 3,
                FailureCode::UnknownHost => 4,
                FailureCode::Refused => 5,
                // "TTL expired": the number that clients show as a timeout.
                FailureCode::TimedOut => 6,
                FailureCode::Reset | FailureCode::Exhausted => 1,
            };
            reply_message(number, None)
        }
    }
}

fn reply_message(number: u8, bound: Option<SocketAddr>) -> Vec<u8> {
    let mut message = vec![VERSION, number, 0];
    match bound.map(|b| (b.ip(), b.port())) {
        Some((IpAddr::V6(address), port)) => {
            message.push(4);
            message.extend(address.octets());
            message.extend(port.to_be_bytes());
        }
        Some((IpAddr::V4(address), port)) => {
            message.push(1);
            message.extend(address.octets());
            message.extend(port.to_be_bytes());
        }
        None => message.extend([1, 0, 0, 0, 0, 0, 0]),
    }
    message
}

enum State {
    Greeting,
    Password,
    Judged,
    Request,
    Done,
}

/// The handshake of one client. Feed it with [`Handshake::receive`] and ask
/// [`Handshake::poll_output`] until it waits.
pub struct Handshake {
    state: State,
    authenticate: bool,
    input: Vec<u8>,
}

impl Handshake {
    /// A handshake that demands a password if `authenticate`.
    pub fn new(authenticate: bool) -> Handshake {
        Handshake {
            state: State::Greeting,
            authenticate,
            input: Vec::new(),
        }
    }

    /// Octets the handshake takes before it must be asked for its output.
    pub fn room(&self) -> usize {
        LONGEST_MESSAGE.saturating_sub(self.input.len()).max(1)
    }

    /// Takes bytes from the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// What is to be done next.
    ///
    /// # Errors
    /// When the client is to be sent away, with [`SocksError::reply`].
    pub fn poll_output(&mut self) -> Result<Output, SocksError> {
        match self.state {
            State::Greeting => self.greeting(),
            State::Password => self.password(),
            State::Request => self.request(),
            State::Judged | State::Done => Ok(Output::Wait),
        }
    }

    /// Takes the judgement that [`Output::Judge`] asks for, and gives the
    /// answer that is to be sent.
    ///
    /// # Errors
    /// When the client may not enter.
    pub fn judge(&mut self, admitted: bool) -> Result<Vec<u8>, SocksError> {
        if !admitted || !matches!(self.state, State::Judged) {
            return Err(SocksError::Credentials);
        }
        self.state = State::Request;
        Ok(vec![PASSWORD_VERSION, 0])
    }

    /// Bytes after the request: the first of the connection itself.
    pub fn into_rest(self) -> Vec<u8> {
        self.input
    }

    fn version(&self) -> Result<(), SocksError> {
        match self.input.first() {
            Some(&other) if other != VERSION => Err(SocksError::Version(other)),
            _ => Ok(()),
        }
    }

    fn greeting(&mut self) -> Result<Output, SocksError> {
        self.version()?;
        let [_, count, methods @ ..] = &self.input[..] else {
            return Ok(Output::Wait);
        };
        let count = usize::from(*count);
        let Some(methods) = methods.get(..count) else {
            return Ok(Output::Wait);
        };
        let wanted = if self.authenticate {
            METHOD_PASSWORD
        } else {
            METHOD_NONE
        };
        if !methods.contains(&wanted) {
            return Err(SocksError::Methods);
        }
        self.input.drain(..2 + count);
        self.state = if self.authenticate {
            State::Password
        } else {
            State::Request
        };
        Ok(Output::Send(vec![VERSION, wanted]))
    }

    fn password(&mut self) -> Result<Output, SocksError> {
        if let Some(&other) = self.input.first()
            && other != PASSWORD_VERSION
        {
            return Err(SocksError::PasswordVersion(other));
        }
        let Some((user, rest)) = self.input.get(1..).and_then(counted) else {
            return Ok(Output::Wait);
        };
        let Some((password, _)) = counted(rest) else {
            return Ok(Output::Wait);
        };
        let length = 3 + user.len() + password.len();
        let (user, password) = (user.to_vec(), password.to_vec());
        self.input.drain(..length);
        self.state = State::Judged;
        Ok(Output::Judge { user, password })
    }

    fn request(&mut self) -> Result<Output, SocksError> {
        self.version()?;
        let [_, command, _, kind, rest @ ..] = &self.input[..] else {
            return Ok(Output::Wait);
        };
        let length = match (*kind, rest.first()) {
            (1, _) => 4,
            (4, _) => 16,
            (3, Some(&length)) => 1 + usize::from(length),
            (3, None) => return Ok(Output::Wait),
            (other, _) => return Err(SocksError::AddressType(other)),
        };
        let (Some(address), Some(port)) = (rest.get(..length), rest.get(length..length + 2)) else {
            return Ok(Output::Wait);
        };
        if *command != COMMAND_CONNECT {
            return Err(SocksError::Command(*command));
        }
        let port = u16::from_be_bytes([port[0], port[1]]);
        let target = destination(*kind, address, port)?;
        self.input.drain(..4 + length + 2);
        self.state = State::Done;
        Ok(Output::Connect(target))
    }
}

fn destination(kind: u8, address: &[u8], port: u16) -> Result<Target, SocksError> {
    if kind == 3 {
        let name = address.get(1..).unwrap_or_default();
        let name = std::str::from_utf8(name).map_err(|_| SocksError::NotAscii)?;
        return Ok(Target::parse(name, port)?);
    }
    let ip: IpAddr = if let Ok(octets) = <[u8; 4]>::try_from(address) {
        Ipv4Addr::from(octets).into()
    } else if let Ok(octets) = <[u8; 16]>::try_from(address) {
        Ipv6Addr::from(octets).to_canonical()
    } else {
        return Err(SocksError::AddressType(kind));
    };
    Ok(Target::Address(SocketAddr::new(ip, port)))
}

/// An octet that counts the octets after it.
fn counted(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = input.split_first()?;
    rest.split_at_checked(usize::from(length))
}

/// Fuzz entry: any bytes, in any pieces, end in an output or an error, and
/// the handshake never holds more than it was given.
pub fn fuzz(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let mut handshake = Handshake::new(first & 1 == 1);
    for piece in data.chunks(usize::from(first >> 1) + 1) {
        handshake.receive(piece);
        loop {
            match handshake.poll_output() {
                Ok(Output::Send(_)) => {}
                Ok(Output::Judge { user, password }) => {
                    if handshake.judge(user.len() >= password.len()).is_err() {
                        return;
                    }
                }
                Ok(Output::Wait) => break,
                Ok(Output::Connect(_)) => return,
                Err(error) => {
                    let _ = error.reply();
                    return;
                }
            }
        }
        assert!(handshake.input.len() < LONGEST_MESSAGE);
    }
}

#[cfg(test)]
mod tests;
