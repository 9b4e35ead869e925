//! Messages and open files between two processes of one node, over a pair of
//! Unix sockets. All calls block.
//!
//! The other end is a process of the same program and user, perhaps of another
//! release: lengths and numbers are bounded before memory is taken for them.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;
use underpass_handover::HandoverError;

/// The longest message, bytes.
const LONGEST: u32 = 4 << 20;
/// The kernel takes 253 at once (SCM_MAX_FD).
const FILES_AT_ONCE: usize = 200;
/// A state goes in pieces of so many bytes.
const PIECE: usize = 64 << 10;

/// One end.
#[derive(Debug)]
pub struct Channel {
    socket: UnixStream,
}

impl Channel {
    /// Both ends.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn pair() -> io::Result<(Channel, UnixStream)> {
        let (socket, other) = UnixStream::pair()?;
        Ok((Channel { socket }, other))
    }

    /// An end that another process has made.
    pub fn of(socket: UnixStream) -> Channel {
        Channel { socket }
    }

    /// The same end once more.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn again(&self) -> io::Result<Channel> {
        self.socket.try_clone().map(Channel::of)
    }

    /// How long one call may wait for the other end.
    ///
    /// # Errors
    /// Never with a time above zero.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(patience)?;
        self.socket.set_write_timeout(patience)
    }

    /// Sends one message.
    ///
    /// # Errors
    /// When the other end is gone or too slow.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        self.socket.write_all(&length.to_be_bytes())?;
        self.socket.write_all(&text)
    }

    /// The next message.
    ///
    /// # Errors
    /// When the other end is gone or too slow, or sends something else.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > LONGEST {
            return Err(io::Error::other("the message is too long"));
        }
        let mut text = Vec::new();
        (&self.socket).take(length.into()).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Sends open files, which stay open here.
    ///
    /// # Errors
    /// When the other end is gone or too slow.
    pub fn send_files(&mut self, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        for portion in files.chunks(FILES_AT_ONCE) {
            let files: Vec<RawFd> = portion.iter().map(AsRawFd::as_raw_fd).collect();
            let rights = [ControlMessage::ScmRights(&files)];
            let byte = [IoSlice::new(&[0])];
            sendmsg::<()>(
                self.socket.as_raw_fd(),
                &byte,
                &rights,
                MsgFlags::MSG_NOSIGNAL,
                None,
            )?;
        }
        Ok(())
    }

    /// Receives this many open files.
    ///
    /// # Errors
    /// When the other end is gone or too slow, or sends others.
    pub fn receive_files(&mut self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let mut files = Vec::new();
        while files.len() < count {
            let portion = self.receive_portion()?;
            let expected = FILES_AT_ONCE.min(count - files.len());
            if portion.len() != expected {
                return Err(io::Error::other("more or fewer open files than were told"));
            }
            files.extend(portion);
        }
        Ok(files)
    }

    fn receive_portion(&mut self) -> io::Result<Vec<OwnedFd>> {
        let mut space = nix::cmsg_space!([RawFd; FILES_AT_ONCE]);
        let mut byte = [0];
        let mut place = [IoSliceMut::new(&mut byte)];
        let received = recvmsg::<()>(
            self.socket.as_raw_fd(),
            &mut place,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )?;
        let mut files = Vec::new();
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(raw) = message {
                // SAFETY: the kernel has just opened them for this process,
                // and nobody else knows of them.
                files.extend(
                    raw.into_iter()
                        .map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }),
                );
            }
        }
        match received.bytes {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(files),
        }
    }

    /// Sends a state in the form of `docs/upgrade.md`, as it is written.
    ///
    /// # Errors
    /// When the other end is gone or too slow.
    pub fn send_state(&mut self, state: &impl Serialize) -> Result<(), HandoverError> {
        let mut pieces = io::BufWriter::with_capacity(PIECE, Pieces(&self.socket));
        underpass_handover::write(state, &mut pieces)?;
        let mut end = pieces
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        Ok(end.finish()?)
    }

    /// A state of at most `most` bytes, as it comes.
    ///
    /// # Errors
    /// When the other end is gone or too slow, or sends something that is no state.
    pub fn receive_state<T: DeserializeOwned>(&mut self, most: u64) -> Result<T, HandoverError> {
        let pieces = PieceReader {
            socket: &self.socket,
            left: 0,
            ended: false,
        };
        underpass_handover::read(io::BufReader::with_capacity(PIECE, pieces), most)
    }
}

/// Writes a length before each piece.
struct Pieces<'a>(&'a UnixStream);

impl Pieces<'_> {
    fn finish(&mut self) -> io::Result<()> {
        self.0.write_all(&0u32.to_be_bytes())
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let piece = &data[..data.len().min(PIECE)];
        if !piece.is_empty() {
            // PIECE fits.
            self.0.write_all(&(piece.len() as u32).to_be_bytes())?;
            self.0.write_all(piece)?;
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Reads what [`Pieces`] has written, to its end and no further.
struct PieceReader<'a> {
    socket: &'a UnixStream,
    left: usize,
    ended: bool,
}

impl Read for PieceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.ended {
            let mut length = [0; 4];
            self.socket.read_exact(&mut length)?;
            self.left = u32::from_be_bytes(length) as usize;
            self.ended = self.left == 0;
        }
        if self.ended {
            return Ok(0);
        }
        let most = buffer.len().min(self.left);
        let count = self.socket.read(&mut buffer[..most])?;
        if count == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    fn both() -> (Channel, Channel) {
        let (one, other) = Channel::pair().unwrap();
        (one, Channel::of(other))
    }

    fn open_files() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn messages_states_and_files_arrive_in_order() {
        let (mut one, mut other) = both();
        let state: Vec<u64> = (0..100_000).collect();
        let sent = state.clone();
        let sender = std::thread::spawn(move || {
            one.send(&"first").unwrap();
            one.send_state(&sent).unwrap();
            let file = File::open("/dev/null").unwrap();
            one.send_files(&[file.as_fd(); 2 * FILES_AT_ONCE + 1])
                .unwrap();
            one.send(&"last").unwrap();
            one
        });
        assert_eq!(other.receive::<String>().unwrap(), "first");
        assert_eq!(other.receive_state::<Vec<u64>>(1 << 20).unwrap(), state);
        let files = other.receive_files(2 * FILES_AT_ONCE + 1).unwrap();
        assert_eq!(files.len(), 2 * FILES_AT_ONCE + 1);
        assert_eq!(other.receive::<String>().unwrap(), "last");
        drop(sender.join().unwrap());
        assert!(other.receive::<String>().is_err());
    }

    #[test]
    fn what_is_too_long_is_not_read() {
        let (one, mut other) = both();
        (&one.socket).write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(other.receive::<String>().is_err());
        let (mut one, mut other) = both();
        let sender = std::thread::spawn(move || one.send_state(&vec![7u64; 10_000]));
        let read = other.receive_state::<Vec<u64>>(1_000);
        assert!(matches!(read, Err(HandoverError::TooLong(1_000))));
        drop(other);
        let _ = sender.join().unwrap();
    }

    #[test]
    fn files_that_were_not_told_of_are_closed() {
        let (mut one, mut other) = both();
        let file = File::open("/dev/null").unwrap();
        let before = open_files();
        one.send_files(&[file.as_fd(); 3]).unwrap();
        assert!(other.receive_files(2).is_err());
        // Files arrive where a message is expected.
        one.send_files(&[file.as_fd(); 3]).unwrap();
        drop(one);
        assert!(other.receive::<String>().is_err());
        drop(other);
        // Other tests of this process open files of their own.
        let patience = std::time::Instant::now();
        while open_files() > before + 20 {
            assert!(patience.elapsed() < Duration::from_secs(60));
        }
    }

    #[test]
    fn an_end_that_is_silent_is_not_waited_for_longer() {
        let (_one, mut other) = both();
        other.set_patience(Some(Duration::from_millis(10))).unwrap();
        let error = other.receive::<String>().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
