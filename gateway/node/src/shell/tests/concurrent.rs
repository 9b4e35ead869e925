//! Shards work concurrently; the effects of each shard come in order.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as blocking;

use super::*;

use super::super::{PORTION, drivers, watch_figures};

/// The changes that each thread makes.
const CHANGES: u64 = 2_000;

#[test]
fn a_session_is_told_everything_in_the_order_in_which_it_was_decided() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let sessions = (0..).zip(&terminals);
        let sessions = sessions.map(|(number, node)| session(&shell, number, *node).1);
        let sessions: Vec<Arc<Recorded>> = sessions.collect();
        let barrier = Barrier::new(3);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (shell, barrier, hops) = (&shell, &barrier, terminals.len() as u64);
                scope.spawn(move || {
                    barrier.wait();
                    for change in 0..CHANGES {
                        let hop = HopId((change * 5 + thread) % hops);
                        let blocked = (change + thread) % 2 == 0;
                        shell.with_hop(hop, |engine, now| engine.block(now, hop, blocked));
                    }
                });
            }
        });
        for (hop, session) in shell.hops().iter().zip(sessions) {
            let told = session.take().into_iter().filter_map(|told| match told {
                Told::Suspend(blocked) => Some(blocked),
                Told::Offer(_) | Told::Abort => None,
            });
            let told: Vec<bool> = told.collect();
            // Only changes are reported, so two successive reports differ.
            assert!(told.windows(2).all(|two| two[0] != two[1]), "{}", hop.name);
            let last = told.last().copied().unwrap_or_default();
            assert_eq!(last, hop.blocked, "{}", hop.name);
        }
    }
}

/// A session that holds its offers back until they are let through.
struct Gate {
    entered: blocking::Sender<()>,
    opened: Mutex<blocking::Receiver<()>>,
}

impl Session for Gate {
    fn offer(&self, _: Transfer) {
        let _ = self.entered.send(());
        let _ = self.opened.lock().unwrap().recv();
    }

    fn set_rate(&self, _: Option<u64>) {}

    fn figures(&self) -> PathFigures {
        PathFigures::default()
    }

    fn close(&self) {}

    fn abort(&self, _: &str) {}
}

#[test]
fn a_shard_that_is_held_up_holds_up_no_other() {
    let terminals = terminals();
    let (shell, _inbound) = shell(&hub(&terminals), 3);
    let slow = terminals[0];
    let mut others = terminals.iter();
    let other = others.find(|node| shard_of(&shell, **node) != shard_of(&shell, slow));
    let (entered, is_in) = blocking::channel();
    let (open, opened) = blocking::channel();
    let gate = Arc::new(Gate {
        entered,
        opened: Mutex::new(opened),
    });
    let id = shell.session_up(SessionId(1), info(slow), gate);
    let (quick, recorded) = session(&shell, 2, *other.expect("one in another shard"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The hop's greeting, or at the latest this message.
            let sent = shell.send_message(message(slow, b"to you"), Duration::from_secs(60), None);
            assert!(sent.is_ok());
            shell.ready(id);
        });
        is_in.recv().expect("something is offered");
        let held = shell.lock(shard_of(&shell, slow));
        shell.ready(quick);
        while recorded.offers().is_empty() {
            let sent = shell.send_message(
                message(*other.expect("as before"), b"to you"),
                Duration::from_secs(60),
                None,
            );
            assert!(sent.is_ok());
        }
        drop(held);
        // Once for each offer.
        drop(open);
    });
}

#[tokio::test(start_paused = true)]
async fn others_run_while_many_hops_are_looked_at() {
    for count in COUNTS {
        let terminals: Vec<u64> = (10..10 + 8 * PORTION as u64).collect();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let (looked, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counted = (looked.clone(), most.clone());
        let plain_ip_bytes = move |_| {
            let since = counted.0.fetch_add(1, Ordering::Relaxed) + 1;
            counted.1.fetch_max(since, Ordering::Relaxed);
            None
        };
        let watched = watch_figures(shell, Arc::default(), plain_ip_bytes);
        let watching = tokio::spawn(watched);
        for _ in 0..100 {
            looked.store(0, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
        watching.abort();
        let most = most.load(Ordering::Relaxed);
        assert!((1..=PORTION).contains(&most), "{most} hops without a pause");
    }
}

#[tokio::test(start_paused = true)]
async fn each_shard_keeps_its_own_deadlines() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let tasks: Vec<_> = drivers(&shell).into_iter().map(tokio::spawn).collect();
        for (seconds, peer) in (1..).zip(&terminals) {
            let lifetime = Duration::from_secs(seconds * 10);
            let sent = shell.send_message(message(*peer, b"to you"), lifetime, None);
            sent.expect("room for it");
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        for left in (0..terminals.len()).rev() {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(shell.custody(super::super::timer::now()).bundles, left);
        }
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
