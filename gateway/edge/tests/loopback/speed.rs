//! Speed tests, over streams in memory.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use underpass_edge::speed::{self, HOST, Service, SpeedTests};
use underpass_edge::stream::{Conduit, Connected, Failure, FailureCode, Received, Target};

/// The capacity of one direction, bytes.
const ROOM: usize = 100_000;

#[derive(Default)]
struct Direction {
    pieces: VecDeque<Bytes>,
    ended: bool,
    reset: Option<Failure>,
    wakers: Vec<Waker>,
}

impl Direction {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    fn held(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

struct End {
    out: Arc<Mutex<Direction>>,
    into: Arc<Mutex<Direction>>,
}

fn stream() -> (Box<End>, Box<End>) {
    let [one, other] = [(); 2].map(|()| Arc::<Mutex<Direction>>::default());
    let end = |out: &Arc<Mutex<Direction>>, into: &Arc<Mutex<Direction>>| {
        Box::new(End {
            out: out.clone(),
            into: into.clone(),
        })
    };
    (end(&one, &other), end(&other, &one))
}

impl Conduit for End {
    fn poll_send_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        let mut out = self.out.lock().unwrap();
        if let Some(failure) = &out.reset {
            return Poll::Ready(Err(failure.clone()));
        }
        match ROOM.saturating_sub(out.held()) {
            0 => {
                out.wakers.push(cx.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(Ok(room)),
        }
    }

    fn send(&mut self, data: Bytes) {
        let mut out = self.out.lock().unwrap();
        out.pieces.push_back(data);
        out.wake();
    }

    fn finish(&mut self) {
        let mut out = self.out.lock().unwrap();
        out.ended = true;
        out.wake();
    }

    fn stop(&mut self) {}

    fn reset(&mut self, failure: Failure) {
        for direction in [&self.out, &self.into] {
            let mut direction = direction.lock().unwrap();
            direction.reset.get_or_insert(failure.clone());
            direction.wake();
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Received> {
        let mut into = self.into.lock().unwrap();
        if let Some(failure) = &into.reset {
            return Poll::Ready(Err(failure.clone()));
        }
        let Some(front) = into.pieces.front_mut() else {
            if into.ended {
                return Poll::Ready(Ok(None));
            }
            into.wakers.push(cx.waker().clone());
            return Poll::Pending;
        };
        let piece = front.split_to(most.min(front.len()));
        if front.is_empty() {
            into.pieces.pop_front();
        }
        into.wake();
        Poll::Ready(Ok(Some(piece)))
    }

    fn poll_outcome(&mut self, _: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        Poll::Pending
    }

    fn connected(&mut self, _: Connected) {}
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.out.lock().unwrap().ended {
            self.reset(Failure::new(FailureCode::Reset, "dropped"));
        }
    }
}

/// A stream to a service of a peer.
fn open(tests: &Arc<SpeedTests>, target: Target) -> Box<End> {
    let (near, far) = stream();
    let tests = tests.clone();
    tokio::spawn(async move { tests.serve(far, 10, &target).await.is_ok() });
    near
}

#[tokio::test(start_paused = true)]
async fn echoes_come_back() {
    let tests = Arc::<SpeedTests>::default();
    let lasts = Duration::from_millis(300);
    let mut echo = open(&tests, Service::Echo.target());
    let each = Duration::from_millis(20);
    let taken = speed::round_trips(echo.as_mut(), lasts, each).await;
    assert!(taken.unwrap().len() > 2);
}

#[tokio::test]
async fn each_direction_is_loaded_for_its_time() {
    let tests = Arc::<SpeedTests>::default();
    let lasts = Duration::from_millis(300);
    let mut down = open(&tests, Service::Generator.target());
    let passed = speed::download(down.as_mut(), lasts).await.unwrap();
    assert!(passed.bytes > ROOM as u64 && passed.took >= lasts);
    let mut up = open(&tests, Service::Discard.target());
    let passed = speed::upload(up.as_mut(), lasts).await.unwrap();
    assert!(passed.bytes > ROOM as u64);
    assert!(passed.bps().unwrap() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_echo_holds_up_no_other() {
    let second = Duration::from_secs(1);
    let (mut near, mut far) = stream();
    tokio::spawn(async move {
        sleep(3 * second).await;
        while let Ok(Some(piece)) = poll_fn(|cx| far.poll_receive(cx, 100)).await {
            far.send(piece);
        }
    });
    let taken = speed::round_trips(near.as_mut(), 2 * second, second / 5).await;
    let taken = taken.unwrap();
    assert_eq!(taken.len(), 10);
    assert!(taken[0] >= 3 * second, "{taken:?}");
    assert!(taken[9] < 3 * second / 2, "{taken:?}");
}

#[tokio::test]
async fn a_peer_has_few_streams_at_once_and_others_have_theirs() {
    let tests = Arc::<SpeedTests>::default();
    let echoes: Vec<_> = (0..4)
        .map(|_| open(&tests, Service::Echo.target()))
        .collect();
    tokio::task::yield_now().await;
    let mut fifth = open(&tests, Service::Echo.target());
    let one = Duration::from_millis(1);
    let refused = speed::round_trips(fifth.as_mut(), one, one).await;
    assert_eq!(refused.unwrap_err().code, FailureCode::Exhausted);
    let (mut near, far) = stream();
    let others = tests.clone();
    tokio::spawn(async move { others.serve(far, 11, &Service::Echo.target()).await.is_ok() });
    assert_eq!(
        speed::round_trips(near.as_mut(), one, one)
            .await
            .unwrap()
            .len(),
        1
    );
    drop(echoes);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let mut again = open(&tests, Service::Echo.target());
    assert!(speed::round_trips(again.as_mut(), one, one).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn no_stream_lasts_longer_than_two_minutes() {
    let tests = Arc::<SpeedTests>::default();
    let mut echo = open(&tests, Service::Echo.target());
    let minute = Duration::from_secs(60);
    assert!(
        speed::round_trips(echo.as_mut(), minute, minute / 2)
            .await
            .is_ok()
    );
    let failure = speed::round_trips(echo.as_mut(), 2 * minute, minute / 2).await;
    assert_eq!(failure.unwrap_err().code, FailureCode::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_hop_that_is_blocked_keeps_no_test_for_ever() {
    let second = Duration::from_secs(1);
    let (mut near, _far) = stream();
    let taken = speed::round_trips(near.as_mut(), second, second).await;
    assert!(taken.unwrap().is_empty());
    let (mut near, _far) = stream();
    let failure = speed::download(near.as_mut(), second).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::TimedOut);
    let (mut near, _far) = stream();
    let failure = speed::upload(near.as_mut(), second).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::TimedOut);
}

#[tokio::test]
async fn other_targets_are_given_back_and_other_ports_refused() {
    let tests = SpeedTests::default();
    let other = Target::parse("example.org", 7).unwrap();
    let (_near, far) = stream();
    assert!(tests.serve(far, 10, &other).await.is_err());
    let (mut near, far) = stream();
    let ssh = Target::parse(&HOST.to_uppercase(), 22).unwrap();
    assert!(tests.serve(far, 10, &ssh).await.is_ok());
    let one = Duration::from_millis(1);
    let refused = speed::round_trips(near.as_mut(), one, one).await;
    assert_eq!(refused.unwrap_err().code, FailureCode::Refused);
}
