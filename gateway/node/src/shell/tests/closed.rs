//! What a stream's task learns after the peer has ended its direction.

use super::*;

use std::task::{Context, Poll, Waker};

use underpass_edge::stream::{Conduit, Failure};
use underpass_streams::{Epoch, Event, ResetCode, StreamId};

use super::super::shard::Effect;
use super::reached::open;

/// A conduit that has received the peer's end, and a way to cause more events.
struct Ended {
    shell: Arc<Shell>,
    conduit: Box<dyn Conduit>,
    peer: u64,
    epoch: Epoch,
    id: StreamId,
}

impl Ended {
    fn new() -> Ended {
        let peer = terminals()[0];
        let (shell, _inbound) = shell(&hub(&terminals()), 1);
        let conduit = open(&shell, peer);
        let name = conduit.stream().expect("a stream of the engine");
        let mut ended = Ended {
            shell,
            conduit,
            peer,
            epoch: Epoch(name.epoch),
            id: StreamId(name.id),
        };
        let mut cx = Context::from_waker(Waker::noop());
        assert!(ended.conduit.poll_receive(&mut cx, 1).is_pending());
        assert!(ended.tell(Event::PeerFinished(ended.id)));
        let end = ended.conduit.poll_receive(&mut cx, 1);
        assert!(matches!(end, Poll::Ready(Ok(None))), "{end:?}");
        assert!(!ended.conduit.peer_has_closed());
        ended
    }

    /// Whether this event wakes anybody.
    fn tell(&self, event: Event) -> bool {
        let mut effects = Vec::new();
        let mut inner = self.shell.lock(0);
        inner.stream_event(self.peer, self.epoch, event, &mut effects);
        effects.iter().any(|it| matches!(it, Effect::Wake(_)))
    }

    fn stopped(&self) -> Event {
        Event::Stopped {
            id: self.id,
            code: ResetCode::Cancelled,
        }
    }

    fn poll_capacity(&mut self) -> Poll<Result<usize, Failure>> {
        let mut cx = Context::from_waker(Waker::noop());
        self.conduit.poll_send_capacity(&mut cx)
    }
}

#[test]
fn that_the_peer_has_closed_wakes_it() {
    let ended = Ended::new();
    assert!(ended.tell(ended.stopped()));
    assert!(ended.conduit.peer_has_closed());
}

#[test]
fn so_it_does_when_room_was_asked_for_in_the_meantime() {
    let mut ended = Ended::new();
    assert!(ended.tell(Event::Writable(ended.id)));
    assert!(matches!(ended.poll_capacity(), Poll::Ready(Ok(_))));
    assert!(ended.tell(ended.stopped()));
    assert!(ended.conduit.peer_has_closed());
}

#[test]
fn and_so_does_a_reset() {
    let mut ended = Ended::new();
    let reset = Event::Reset {
        id: ended.id,
        code: ResetCode::Restarted,
        reason: String::new(),
    };
    assert!(ended.tell(reset));
    assert!(matches!(ended.poll_capacity(), Poll::Ready(Err(_))));
}
