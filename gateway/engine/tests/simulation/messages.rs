//! Services' messages beside the streams.

use std::time::Duration;

use bytes::Bytes;
use underpass_bundle::SendError;
use underpass_engine::Message;

use crate::pattern::{is_pattern, pattern};
use crate::schedule::MessagePlan;
use crate::world::{Happening, World};

pub const SERVICE: u64 = 81;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The pause before a service tries again if its node's store is full.
const RETRY: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub struct MessageRun {
    pub plan: MessagePlan,
    /// The incarnation of the node that has accepted it, if any.
    pub taken: Option<u64>,
    pub arrived: u32,
}

impl World {
    pub fn send_message(&mut self, serial: usize) {
        let plan = self.messages[serial].plan.clone();
        let peer = self.schedule.nodes[plan.to].number;
        let head = Bytes::copy_from_slice(&(serial as u64).to_be_bytes());
        let body = pattern(serial, 0, 0, plan.bytes);
        let message = Message::new(peer, SERVICE, plan.class, [head, body].concat().into());
        let sent = self.call_for(plan.from, peer, |engine, now| {
            engine.send_message(now, message, DAY)
        });
        match sent {
            Some(Ok(_)) => {
                self.messages[serial].taken = Some(self.nodes[plan.from].incarnation);
            }
            // The node is stopped, or its store is full.
            None | Some(Err(SendError::NoRoom)) => {
                self.at(self.now + RETRY, Happening::SendMessage(serial));
            }
            Some(Err(error)) => panic!("message {serial}: {error}"),
        }
    }

    pub fn message_arrives(&mut self, node: usize, message: &Message) {
        let (head, body) = message.payload.split_at(8);
        let serial = u64::from_be_bytes(head.try_into().expect("eight bytes")) as usize;
        let run = &mut self.messages[serial];
        assert_eq!(run.plan.to, node);
        assert_eq!(message.peer, self.schedule.nodes[run.plan.from].number);
        assert_eq!(body.len(), run.plan.bytes);
        assert!(
            is_pattern(serial, 0, 0, body),
            "message {serial} is another"
        );
        run.arrived += 1;
        // A node that was stopped may receive the message a second time.
        let again = self.nodes[node].incarnation > 1;
        assert!(run.arrived == 1 || again, "message {serial} comes twice");
    }

    pub fn check_messages(&self) {
        for (serial, run) in self.messages.iter().enumerate() {
            // A message that the sender had only in memory may be lost with its process.
            let kept = run.taken == Some(self.nodes[run.plan.from].incarnation);
            assert!(
                run.arrived > 0 || !kept || self.schedule.flips(),
                "message {serial} is lost: {}",
                self.describe()
            );
        }
    }
}
