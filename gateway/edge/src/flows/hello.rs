//! The name that a TLS client asks for (*server name*, RFC 6066 § 3), without
//! I/O and clock.

use std::sync::Arc;

use rustls::server::Acceptor;

/// A longer ClientHello is not read to its end. One with keys of post-quantum groups has some 2
/// KiB.
pub(super) const MOST_HELLO_BYTES: usize = 16 * 1024;
/// ContentType of a handshake record, and the first octet of its version (RFC
/// 8446 § 5.1).
const HANDSHAKE_RECORD: [u8; 2] = [22, 3];

/// Reads a client's first bytes while they are passed on: no byte waits until the ClientHello is
/// complete.
pub(super) enum ClientHello {
    /// Nothing has come.
    Awaited,
    /// These first bytes may belong to one; there are too few to decide.
    Begins(u8),
    /// A part of it has come, so many bytes.
    Partial(Box<Acceptor>, usize),
    /// It has been read, or it is none.
    Over,
}

impl ClientHello {
    /// Takes the next bytes of the client. Returns the name that they complete, in lower case. If
    /// the client encrypts its ClientHello (ECH), that is the outer name.
    pub fn read(&mut self, data: &[u8]) -> Option<Arc<str>> {
        match std::mem::replace(self, ClientHello::Over) {
            ClientHello::Over => None,
            ClientHello::Awaited => match data {
                [] => {
                    *self = ClientHello::Awaited;
                    None
                }
                [first] if *first == HANDSHAKE_RECORD[0] => {
                    *self = ClientHello::Begins(*first);
                    None
                }
                _ if data.starts_with(&HANDSHAKE_RECORD) => self.go_on(Box::default(), 0, data),
                _ => None,
            },
            ClientHello::Begins(first) => match data {
                [] => {
                    *self = ClientHello::Begins(first);
                    None
                }
                [second, ..] if *second == HANDSHAKE_RECORD[1] => {
                    let mut acceptor = Box::<Acceptor>::default();
                    acceptor.read_tls(&mut &[first][..]).ok()?;
                    self.go_on(acceptor, 1, data)
                }
                _ => None,
            },
            ClientHello::Partial(acceptor, before) => self.go_on(acceptor, before, data),
        }
    }

    fn go_on(
        &mut self,
        mut acceptor: Box<Acceptor>,
        mut read_bytes: usize,
        mut data: &[u8],
    ) -> Option<Arc<str>> {
        while !data.is_empty() {
            if read_bytes >= MOST_HELLO_BYTES {
                return None;
            }
            read_bytes += acceptor.read_tls(&mut data).ok()?;
            if let Some(accepted) = acceptor.accept().ok()? {
                let name = accepted.client_hello().server_name()?.to_ascii_lowercase();
                return Some(name.into());
            }
        }
        *self = ClientHello::Partial(acceptor, read_bytes);
        None
    }
}

impl std::fmt::Debug for ClientHello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ClientHello::Awaited => "Awaited",
            ClientHello::Begins(_) => "Begins",
            ClientHello::Partial(..) => "Partial",
            ClientHello::Over => "Over",
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A ClientHello of TLS 1.2 for a name, in records of at most `record` bytes.
    pub fn hello(name: &str, record: usize) -> Vec<u8> {
        let list = [&[0][..], &be16(name.len()), name.as_bytes()].concat();
        let names = [&be16(list.len()), &list[..]].concat();
        with_extension(0, &names, record)
    }

    /// A ClientHello with an extension of this type in addition to the required ones.
    fn with_extension(kind: u16, content: &[u8], record: usize) -> Vec<u8> {
        let signatures = [0, 4, 4, 3, 8, 4];
        let groups = [0, 2, 0, 29];
        let extension = |kind: u16, content: &[u8]| {
            [&kind.to_be_bytes()[..], &be16(content.len()), content].concat()
        };
        let extensions = [
            extension(kind, content),
            extension(13, &signatures),
            extension(10, &groups),
        ]
        .concat();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0],
            &[0, 2, 0xc0, 0x2b],
            &[1, 0],
            &be16(extensions.len()),
            &extensions,
        ]
        .concat();
        let message = [&[1, 0], &be16(body.len())[..], &body].concat();
        let records = message.chunks(record);
        let records = records.map(|part| [&[22, 3, 1], &be16(part.len())[..], part].concat());
        records.collect::<Vec<_>>().concat()
    }

    fn be16(length: usize) -> [u8; 2] {
        u16::try_from(length).expect("a short length").to_be_bytes()
    }

    /// The name found in these bytes, read in pieces of `piece` bytes, and whether more bytes could
    /// complete it.
    fn name_of(data: &[u8], piece: usize) -> (Option<String>, bool) {
        let mut hello = ClientHello::Awaited;
        let names = data.chunks(piece).filter_map(|piece| hello.read(piece));
        let names: Vec<_> = names.collect();
        assert!(names.len() <= 1, "{names:?}");
        let open = !matches!(hello, ClientHello::Over);
        (names.first().map(|name| name.to_string()), open)
    }

    #[test]
    fn a_name_is_read_however_the_hello_is_cut() {
        for record in [1, 5, 100, 16_384] {
            let data = hello("WWW.Example.org", record);
            for piece in [1, 2, 3, 7, 100, data.len()] {
                let name = Some("www.example.org".to_owned());
                assert_eq!(name_of(&data, piece), (name, false), "{record} {piece}");
            }
        }
    }

    #[test]
    fn what_is_no_tls_is_seen_by_its_first_two_bytes() {
        for data in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0", &[22, 4], &[23, 3]] {
            for piece in [1, 2, data.len()] {
                assert_eq!(name_of(data, piece), (None, false), "{data:?}");
            }
        }
    }

    #[test]
    fn a_hello_without_a_name_or_with_an_address_has_none() {
        let whole = |data: Vec<u8>| name_of(&data, data.len());
        assert_eq!(whole(hello("192.0.2.1", 16_384)), (None, false));
        assert_eq!(whole(with_extension(0x1234, &[], 16_384)), (None, false));
    }

    #[test]
    fn names_and_lengths_that_lie_are_no_names() {
        let long = "a".repeat(60_000);
        for name in [&*long, "p\u{e4}th.example", "a b", "a\0b", "", ".", "a\nb"] {
            let data = hello(name, 16_000);
            let (read, _) = name_of(&data, 1_000);
            assert_eq!(read, None, "{} bytes", name.len());
        }
        let data = hello("www.example.org", 16_384);
        for place in 0..data.len() {
            for lie in [0, 1, 0x7f, 0xff] {
                let mut data = data.clone();
                data[place] = lie;
                let (read, _) = name_of(&data, 50);
                let plain = |name: &String| name.len() <= 253 && name.is_ascii();
                assert!(read.iter().all(plain), "{place} {lie}");
            }
        }
    }

    #[test]
    fn a_hello_that_never_ends_is_given_up() {
        // A message that declares 65,000 bytes.
        let first = [22, 3, 1, 0, 4, 1, 0, 0xfd, 0xe8];
        let endless = [22, 3, 1, 0, 1, 7].repeat(MOST_HELLO_BYTES / 6 + 1);
        let data = [&first[..], &endless].concat();
        assert_eq!(name_of(&data[..1_000], 6), (None, true));
        assert_eq!(name_of(&data, 6), (None, false));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(
            data in proptest::collection::vec(any::<u8>(), 0..600),
            piece in 1..100usize,
        ) {
            let begun = [&HANDSHAKE_RECORD[..], &data].concat();
            let (name, _) = name_of(&begun, piece);
            prop_assert!(name.is_none_or(|name| name.is_ascii() && name.len() <= 253));
        }
    }
}
