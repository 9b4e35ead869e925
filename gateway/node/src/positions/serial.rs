//! A serial line: raw bytes at a rate.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nix::sys::termios::{
    self, BaudRate, ControlFlags, FlushArg, SetArg, cfmakeraw, cfsetspeed, tcgetattr, tcsetattr,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};

/// An open serial line; nothing is written to it.
#[derive(Debug)]
pub struct SerialLine {
    file: AsyncFd<File>,
}

impl SerialLine {
    /// Opens a line at `baud` bit/s.
    ///
    /// # Errors
    /// When it is not there, may not be read, or is no serial line.
    pub fn open(device: &Path, baud: u32) -> io::Result<SerialLine> {
        // Without O_NOCTTY, a hang-up of the line would send SIGHUP to the node.
        let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(device)?;
        let mut settings = tcgetattr(&file)?;
        cfmakeraw(&mut settings);
        cfsetspeed(&mut settings, rate(baud)?)?;
        // CLOCAL: receivers do not drive the lines of a telephone modem.
        settings.control_flags |= ControlFlags::CLOCAL | ControlFlags::CREAD;
        tcsetattr(&file, SetArg::TCSANOW, &settings)?;
        // Bytes that came before are of another rate, or old.
        termios::tcflush(&file, FlushArg::TCIFLUSH)?;
        // SAFETY: a `File` owns its descriptor, which is the same until it is
        // dropped, and it is dropped with the `AsyncFd` or after it.
        let file = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }?;
        Ok(SerialLine { file })
    }
}

impl AsyncRead for SerialLine {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.file.poll_read_ready(cx))?;
            let unfilled = into.initialize_unfilled();
            // Not readable after all: waits again.
            if let Ok(read) = guard.try_io(|file| file.get_ref().read(unfilled)) {
                return Poll::Ready(read.map(|count| into.advance(count)));
            }
        }
    }
}

fn rate(baud: u32) -> io::Result<BaudRate> {
    Ok(match baud {
        1_200 => BaudRate::B1200,
        2_400 => BaudRate::B2400,
        4_800 => BaudRate::B4800,
        9_600 => BaudRate::B9600,
        19_200 => BaudRate::B19200,
        38_400 => BaudRate::B38400,
        57_600 => BaudRate::B57600,
        115_200 => BaudRate::B115200,
        230_400 => BaudRate::B230400,
        460_800 => BaudRate::B460800,
        _ => return Err(io::Error::from(io::ErrorKind::InvalidInput)),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use nix::pty::openpty;
    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

    use super::*;

    /// A program that another test has started may have the line open until it ends.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn bytes_come_as_they_are_and_an_unplugged_line_is_told() {
        let pty = openpty(None, None).unwrap();
        let device = nix::unistd::ttyname(&pty.slave).unwrap();
        let mut line = SerialLine::open(&device, 9_600).unwrap();
        drop(pty.slave);
        let mut receiver = File::from(pty.master);
        // Control characters for the end of a line or file have no effect.
        let said = b"$GP\r\n\x04\x03\xff";
        receiver.write_all(said).unwrap();
        let mut heard = [0; 8];
        timeout(PATIENCE, line.read_exact(&mut heard))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&heard, said);
        drop(receiver);
        let ended = timeout(PATIENCE, line.read(&mut heard)).await.unwrap();
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }

    #[tokio::test]
    async fn what_is_no_serial_line_is_refused() {
        assert!(SerialLine::open(Path::new("/dev/null"), 9_600).is_err());
        assert!(SerialLine::open(Path::new("/nowhere"), 9_600).is_err());
    }
}
