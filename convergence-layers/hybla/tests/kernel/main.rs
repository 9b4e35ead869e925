//! The kernel runs the controls: live connections, observed through TCP_INFO.
//!
//! Needs root and a kernel of 6.4 or later; skips with a message without.

mod connection;

use std::sync::{Mutex, OnceLock};
use std::{io, thread};

use connection::{
    Connection, block, enter_own_network, lose, pattern, police, set_max_pacing_rate,
};
use underpass_hybla::arithmetic::allocated_window;
use underpass_hybla::{Control, Loader, available, usable};

const RATE: u64 = 2_000_000;
/// Each of them loses a third of the segments or more.
const BLOCKAGES: u32 = 6;
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// One registration for all tests of this process: the names belong to the kernel.
fn registered(control: Control) -> bool {
    static LOADER: OnceLock<Mutex<Loader>> = OnceLock::new();
    let loader = LOADER.get_or_init(Mutex::default);
    match loader
        .lock()
        .expect("no test panics with it")
        .ensure(control)
    {
        Ok(()) => true,
        Err(error) => {
            skipped::because(error);
            false
        }
    }
}

/// Runs `test` in a network namespace of its own, where that is possible.
fn with(controls: &[Control], test: impl FnOnce() -> io::Result<()> + Send) {
    if !controls.iter().all(|control| registered(*control)) {
        return;
    }
    thread::scope(|scope| {
        let run = scope.spawn(|| match enter_own_network() {
            Ok(()) => test().expect("the connection works"),
            Err(error) => skipped::because(format!("no network namespace: {error}")),
        });
        if let Err(panic) = run.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// The window that the allocation needs at the smallest possible round trip: no window may be
/// smaller.
fn floor(info: &libc::tcp_info) -> u32 {
    allocated_window(RATE, 1, 1, info.tcpi_snd_mss)
}

#[test]
fn each_control_carries_data_unchanged() {
    with(&Control::ALL, || {
        for control in Control::ALL {
            assert!(available().iter().any(|name| name == control.name()));
            let connection = Connection::open(control.name(), None)?;
            let sent = pattern(4 << 20);
            connection.send(&sent, |_| {})?;
            assert!(connection.finish()? == sent, "{}", control.name());
        }
        Ok(())
    });
}

#[test]
fn allocation_is_paced_and_covered_from_the_first_segment() {
    with(&[Control::Dama], || {
        let connection = Connection::open("hybla_dama", Some(RATE))?;
        let info = connection.figures()?;
        assert_eq!(info.tcpi_pacing_rate, RATE);
        assert!(info.tcpi_snd_cwnd >= floor(&info));
        // No more than the arithmetic's window for the round trip of the handshake.
        let rtt = info.tcpi_rtt.max(1);
        let bound = allocated_window(RATE, rtt, rtt, info.tcpi_snd_mss);
        assert!(
            info.tcpi_snd_cwnd <= bound,
            "{} above {bound}",
            info.tcpi_snd_cwnd
        );
        connection.finish().map(drop)
    });
}

#[test]
fn a_change_of_the_allocation_is_followed_at_the_next_segment() {
    with(&[Control::Dama], || {
        let connection = Connection::open("hybla_dama", Some(RATE))?;
        for rate in [8 * RATE, RATE / 4, RATE] {
            set_max_pacing_rate(&connection.sender, rate)?;
            connection.send(&[0; 1000], |info| assert_eq!(info.tcpi_pacing_rate, rate))?;
        }
        connection.finish().map(drop)
    });
}

#[test]
fn an_allocation_of_nothing_still_moves_a_segment() {
    with(&[Control::Dama], || {
        let connection = Connection::open("hybla_dama", Some(RATE))?;
        set_max_pacing_rate(&connection.sender, 0)?;
        connection.send(&[1; 100], |info| {
            assert_eq!(info.tcpi_pacing_rate, u64::from(info.tcpi_snd_mss));
        })?;
        assert_eq!(connection.finish()?, [1; 100]);
        Ok(())
    });
}

#[test]
fn loss_does_not_shrink_the_window_below_the_allocation() {
    with(&[Control::Dama], || {
        if let Err(error) = lose(2) {
            skipped::because(format!("no loss without nftables: {error}"));
            return Ok(());
        }
        let connection = Connection::open("hybla_dama", Some(RATE))?;
        let sent = pattern(2 << 20);
        connection.send(&sent, |info| {
            assert!(
                info.tcpi_snd_cwnd >= floor(&info),
                "{} segments after {} retransmissions",
                info.tcpi_snd_cwnd,
                info.tcpi_total_retrans
            );
            assert_eq!(info.tcpi_pacing_rate, RATE);
        })?;
        assert!(
            connection.figures()?.tcpi_total_retrans > 0,
            "nothing was lost"
        );
        assert!(connection.finish()? == sent);
        Ok(())
    });
}

#[test]
fn an_allocation_that_the_path_does_not_carry_is_not_repeated_for_ever() {
    with(&[Control::Dama], || {
        if let Err(error) = police(1_000) {
            skipped::because(format!("no policer without nftables: {error}"));
            return Ok(());
        }
        // Eight times what the path carries.
        let connection = Connection::open("hybla_dama", Some(8_000_000))?;
        let sent = pattern(6 << 20);
        connection.send(&sent, |_| {})?;
        let info = connection.figures()?;
        let (repeated, segments) = (info.tcpi_total_retrans, info.tcpi_data_segs_out);
        // Without the guard seven of eight segments are lost, also of the repeated ones.
        assert!(
            repeated < segments / 2,
            "{repeated} of {segments} were sent again"
        );
        assert!(connection.finish()? == sent);
        Ok(())
    });
}

#[test]
fn a_blockage_says_nothing_of_what_the_path_carries() {
    with(&[Control::Dama], || {
        if let Err(error) = lose(0) {
            skipped::because(format!("no blockage without nftables: {error}"));
            return Ok(());
        }
        let connection = Connection::open("hybla_dama", Some(RATE))?;
        let part = pattern(60_000);
        connection.send(&part, |_| {})?;
        for _ in 0..BLOCKAGES {
            // A window of segments leaves by the second timeout, and is lost.
            block(true)?;
            let enough = connection.figures()?.tcpi_total_retrans + 2;
            let mut blocked = true;
            connection.send(&part, |info| {
                assert_eq!(info.tcpi_pacing_rate, RATE);
                if blocked && info.tcpi_total_retrans >= enough {
                    block(false).expect("nftables works");
                    blocked = false;
                }
            })?;
        }
        connection.finish().map(drop)
    });
}

#[test]
fn loss_halves_the_window_of_hybla() {
    with(&[Control::Hybla], || {
        if let Err(error) = lose(2) {
            skipped::because(format!("no loss without nftables: {error}"));
            return Ok(());
        }
        let connection = Connection::open("hybla_bpf", None)?;
        let sent = pattern(2 << 20);
        let mut largest = 0;
        connection.send(&sent, |info| largest = largest.max(info.tcpi_snd_cwnd))?;
        let info = connection.figures()?;
        assert!(info.tcpi_total_retrans > 0, "nothing was lost");
        assert!(
            info.tcpi_snd_ssthresh <= largest / 2 + 1,
            "{}",
            info.tcpi_snd_ssthresh
        );
        assert!(connection.finish()? == sent);
        Ok(())
    });
}

#[test]
fn without_an_allocation_dama_is_hybla() {
    with(&Control::ALL, || {
        let mut figures = Vec::new();
        for control in Control::ALL {
            let connection = Connection::open(control.name(), None)?;
            let info = connection.figures()?;
            assert_eq!(info.tcpi_snd_ssthresh, INFINITE_SSTHRESH);
            // Slow start paces at twice the window per round trip.
            let window = u64::from(info.tcpi_snd_cwnd) * u64::from(info.tcpi_snd_mss);
            let exact = window * 2_000_000 / u64::from(info.tcpi_rtt.max(1));
            assert!(info.tcpi_pacing_rate.abs_diff(exact) <= exact / 10);
            figures.push(info.tcpi_snd_cwnd);
            connection.finish()?;
        }
        assert_eq!(figures[0], figures[1]);
        Ok(())
    });
}

#[test]
fn a_preference_list_yields_the_first_usable_and_says_why_not_the_others() {
    if !registered(Control::Dama) {
        return;
    }
    let choice = Loader::new().choose(&["no_such_control", "hybla_dama", "cubic"]);
    assert_eq!(choice.name.as_deref(), Some("hybla_dama"));
    assert_eq!(choice.refused.len(), 1);
    assert_eq!(
        choice.to_string(),
        "hybla_dama; not no_such_control: \
         the kernel does not have it, and no module of that name could be loaded"
    );
    let none = Loader::new().choose(&["no_such_control"]);
    assert_eq!(none.name, None);
    assert!(usable("no_such_control").is_err());
}
