//! A connection to the kernel's path manager.

use std::fmt::Debug;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};

use super::message::{FAMILY, Message};

/// A socket of generic netlink, and the number of the family.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    family: u16,
}

impl Netlink {
    /// Connects to the path manager of this network namespace.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has none.
    pub fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let ask = GenlMessage::from_payload(GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![GenlCtrlAttrs::FamilyName(FAMILY.to_owned())],
        });
        let answers: Vec<GenlMessage<GenlCtrl>> = exchange(&socket, ask, NLM_F_ACK)?;
        let attributes = answers.into_iter().flat_map(|answer| answer.payload.nlas);
        let family = attributes
            .into_iter()
            .find_map(|attribute| match attribute {
                GenlCtrlAttrs::FamilyId(id) => Some(id),
                _ => None,
            });
        let family = family.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Netlink { socket, family })
    }

    /// Sends a command or a query for one item. Returns the answer, if any.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ask(&self, message: Message) -> io::Result<Option<Message>> {
        let answers = self.exchange(message, NLM_F_ACK)?;
        Ok(answers.into_iter().next())
    }

    /// Asks for all items of a kind.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn list(&self, message: Message) -> io::Result<Vec<Message>> {
        self.exchange(message, NLM_F_DUMP)
    }

    fn exchange(&self, message: Message, flags: u16) -> io::Result<Vec<Message>> {
        let mut message = GenlMessage::from_payload(message);
        message.set_resolved_family_id(self.family);
        let answers: Vec<GenlMessage<Message>> = exchange(&self.socket, message, flags)?;
        Ok(answers.into_iter().map(|answer| answer.payload).collect())
    }
}

/// Sends a request and collects what is answered, up to the acknowledgement or
/// the end of the list.
fn exchange<T>(
    socket: &Socket,
    request: GenlMessage<T>,
    flags: u16,
) -> io::Result<Vec<GenlMessage<T>>>
where
    T: Debug,
    GenlMessage<T>: NetlinkSerializable + NetlinkDeserializable,
{
    let mut request = NetlinkMessage::from(request);
    request.header.flags = NLM_F_REQUEST | flags;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answers = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<GenlMessage<T>>::deserialize(rest);
            let message = message.map_err(|error| io::Error::other(error.to_string()))?;
            let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
            // Messages begin at multiples of 4.
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                NetlinkPayload::Done(_) => return Ok(answers),
                NetlinkPayload::Error(error) => {
                    return match error.code {
                        None => Ok(answers),
                        Some(_) => Err(error.to_io()),
                    };
                }
                _ => {}
            }
        }
    }
}
