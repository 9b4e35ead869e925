//! The start of a TCPCLv4 session without TLS, on either side.

use std::io::{Read, Write};
use std::net::TcpStream;

use thiserror::Error;
use underpass_tcpcl::wire::{
    CONTACT_HEADER_BYTES, ContactError, ContactHeader, DecodeError, Decoder, ExtensionList, Frame,
    Limits, SessInit,
};

/// Why nothing can be measured.
#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("the peer's contact header: {0}")]
    Contact(#[from] ContactError),
    #[error("the peer's messages: {0}")]
    Messages(#[from] DecodeError),
    #[error("the peer ended the session: {0}")]
    Ended(String),
    #[error("what came is not what was sent: {0}")]
    Foreign(String),
}

pub struct Session {
    pub stream: TcpStream,
    pub decoder: Decoder,
    /// Bytes that were read and not processed yet.
    pub input: Vec<u8>,
    /// The most bytes that the peer takes in one segment.
    pub segment_mru: u64,
}

/// Exchanges contact headers and SESS_INIT.
pub fn begin(mut stream: TcpStream, node: u64) -> Result<Session, Error> {
    stream.set_nodelay(true)?;
    let mut out = Vec::new();
    ContactHeader { can_tls: false }.emit(&mut out);
    SessInit {
        keepalive_s: 0,
        segment_mru_bytes: 1 << 24,
        transfer_mru_bytes: 1 << 30,
        node_id: format!("ipn:{node}.0"),
        extensions: Ok(ExtensionList::default()),
    }
    .emit(&mut out);
    stream.write_all(&out)?;
    let mut header = [0; CONTACT_HEADER_BYTES];
    stream.read_exact(&mut header)?;
    ContactHeader::parse(&header)?;
    let mut decoder = Decoder::new(Limits::default());
    let mut input = Vec::new();
    let mut piece = vec![0; 4096];
    loop {
        if let Some((frame, taken)) = decoder.next(&input)? {
            let Frame::Init(init) = frame else {
                return Err(Error::Ended(format!("{frame:?} instead of SESS_INIT")));
            };
            input.drain(..taken);
            return Ok(Session {
                stream,
                decoder,
                input,
                segment_mru: init.segment_mru_bytes,
            });
        }
        match stream.read(&mut piece)? {
            0 => return Err(Error::Ended("before its SESS_INIT".to_owned())),
            read => input.extend(&piece[..read]),
        }
    }
}
