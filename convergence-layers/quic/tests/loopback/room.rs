//! Bundles that wait for room.

use std::time::Duration;

use quinn::SendStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use underpass_quic::ListenerConfig;

use crate::hostile::{PATIENCE, Scene, begin};
use underpass_cla_testing::node::TestNode;

const A_WHILE: Duration = Duration::from_millis(500);

/// A hub where bundles wait for room for any time, and a peer of it.
async fn scene(configure: impl FnOnce(&mut ListenerConfig)) -> Scene {
    let waits = |hub: &mut ListenerConfig| {
        hub.session.room_timeout = 2 * PATIENCE;
        configure(hub);
    };
    Scene::at(TestNode::new(), None, waits).await
}

/// Begins bundles that take all room: five of 4 MiB.
async fn fill(scene: &Scene) -> Vec<SendStream> {
    let mut claimed = Vec::new();
    for _ in 0..5 {
        claimed.push(scene.begin(4 << 20, b"x").await);
    }
    // Time for the hub to read their beginnings.
    tokio::time::sleep(A_WHILE).await;
    claimed
}

/// Whether the hub refuses a bundle soon.
async fn is_refused(stream: &SendStream) -> bool {
    timeout(A_WHILE, stream.stopped()).await.is_ok()
}

#[tokio::test]
async fn a_bundle_without_room_waits_until_another_leaves_it_some() {
    let mut scene = scene(|_| {}).await;
    let mut claimed = fill(&scene).await;
    let mut waiting = scene.begin(4 << 20, b"").await;
    assert!(!is_refused(&waiting).await);
    claimed[0].reset(0u8.into()).expect("it is open");
    let bytes = vec![7; 4 << 20];
    let written = timeout(PATIENCE, waiting.write_all(&bytes)).await;
    written.expect("it has room").expect("a connection");
    waiting.finish().expect("it is open");
    assert!(scene.hub.received().await.1 == bytes);
}

#[tokio::test]
async fn two_bundles_that_come_at_once_and_have_no_room_together_both_arrive() {
    let mut scene = scene(|hub| {
        hub.session.transfer_mru_bytes = 20 << 20;
        hub.session.whole_mru_bytes = 20 << 20;
        // There is room for 24 MiB in all.
        hub.session.receive_window_bytes = 2 << 20;
    })
    .await;
    let bytes = vec![7; 13 << 20];
    let send = || async {
        let mut stream = scene.begin(13 << 20, &bytes).await;
        stream.finish().expect("it is open");
        stream.stopped().await.expect("a connection")
    };
    let sent = timeout(PATIENCE, async { tokio::join!(send(), send()) }).await;
    assert_eq!(sent, Ok((None, None)), "one is refused");
    for _ in 0..2 {
        assert!(scene.hub.received().await.1 == bytes);
    }
}

#[tokio::test]
async fn one_bundle_of_a_session_waits_and_the_next_one_is_refused() {
    let scene = scene(|_| {}).await;
    let _claimed = fill(&scene).await;
    let two = [
        scene.begin(4 << 20, b"x").await,
        scene.begin(4 << 20, b"x").await,
    ];
    let mut refusals = JoinSet::new();
    for stream in &two {
        refusals.spawn(stream.stopped());
    }
    let refused = timeout(PATIENCE, refusals.join_next()).await;
    assert!(refused.is_ok(), "both wait");
    let more = timeout(A_WHILE, refusals.join_next()).await;
    assert!(more.is_err(), "none waits");
}

#[tokio::test]
async fn a_bundle_that_is_given_up_while_it_waits_leaves_its_turn_to_the_next_one() {
    let scene = scene(|_| {}).await;
    let _claimed = fill(&scene).await;
    for _ in 0..2 {
        let mut waiting = scene.begin(4 << 20, b"x").await;
        assert!(!is_refused(&waiting).await);
        waiting.reset(0u8.into()).expect("it is open");
        tokio::time::sleep(A_WHILE).await;
    }
}

#[tokio::test]
async fn a_session_rests_while_a_bundle_of_its_peer_has_room_on_another_one() {
    let mut scene = scene(|hub| {
        // A peer that is silent for twice this time counts as gone, even while other programs
        // delay this one.
        hub.session.keepalive_s = 3;
        hub.session.resting_keepalive_s = 600;
    })
    .await;
    let another = scene.another().await;
    let _elsewhere = begin(&another.0, 1 << 20, b"x").await;
    let session = scene.session.clone();
    session.rest(true);
    // One keepalive may be about to leave.
    tokio::time::sleep(A_WHILE).await;
    let before = session.figures().keepalives_sent;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(session.figures().keepalives_sent, before);
    // A peer that is gone must not keep the room of a bundle on this session.
    let _here = scene.begin(1 << 20, b"x").await;
    tokio::time::sleep(A_WHILE).await;
    session.rest(true);
    let shows_life = async {
        while session.figures().keepalives_sent == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let shown = timeout(PATIENCE, shows_life).await;
    shown.expect("it shows life");
}
