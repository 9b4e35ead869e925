//! The terminal while it shows a screen: it is restored however the process ends, except by
//! SIGKILL.

use std::io::{self, IsTerminal};
use std::sync::Once;

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;

/// A terminal in raw mode that shows the alternate screen; dropping this restores it.
pub struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Takes the terminal that standard input and output are.
    ///
    /// # Errors
    /// When it refuses; the terminal is then unchanged.
    pub fn open() -> io::Result<Screen> {
        end_on_panic();
        match ratatui::try_init() {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Whether there is a terminal to take.
    pub fn possible() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    pub fn terminal(&mut self) -> &mut DefaultTerminal {
        &mut self.terminal
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Errors are ignored: there is nowhere left to report them.
fn give_back() {
    let _ = ratatui::try_restore();
    let _ = execute!(io::stdout(), Show);
}

/// A panic of any thread ends the process after restoring the terminal, so its text is on the
/// user's normal screen.
fn end_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            report(info);
            std::process::exit(101);
        }));
    });
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use nix::pty::openpty;
    use nix::sys::termios::{LocalFlags, tcgetattr};

    use super::*;

    /// Set in the process that is to panic.
    const PANICS: &str = "UNDERPASS_TEST_TOP_PANICS";

    #[test]
    fn a_panic_of_any_thread_gives_the_terminal_back() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = Screen::open().unwrap();
            let _ = std::thread::spawn(|| panic!("half drawn")).join();
            std::thread::park();
        }
        let pty = openpty(None, None).unwrap();
        let terminal = || Stdio::from(pty.slave.try_clone().unwrap());
        let name = "top::terminal::tests::a_panic_of_any_thread_gives_the_terminal_back";
        let mut run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(PANICS, "1")
            .stdin(terminal())
            .stdout(terminal())
            .stderr(terminal())
            .spawn()
            .unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(101));
        let flags = tcgetattr(&pty.slave).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ECHO | LocalFlags::ICANON));
        // The last output may still be on its way; after it, the line hangs up.
        drop(pty.slave);
        let mut master = std::fs::File::from(pty.master);
        let (mut seen, mut some) = (Vec::new(), [0; 4096]);
        loop {
            let text = String::from_utf8_lossy(&seen).into_owned();
            let left = text.rfind("\x1b[?1049l").map(|at| &text[at..]);
            let is_told = |what: &str| left.is_some_and(|left| left.contains(what));
            // The cursor is back, and the reason is printed where it is not erased.
            if is_told("\x1b[?25h") && is_told("half drawn") {
                break;
            }
            let Ok(length @ 1..) = master.read(&mut some) else {
                panic!("the screen is not left: {text:?}");
            };
            seen.extend_from_slice(&some[..length]);
        }
    }
}
