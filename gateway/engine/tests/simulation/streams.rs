//! Streams open, are accepted, and transfer data.

use std::time::Duration;

use underpass_engine::StreamKey;
use underpass_streams::{Epoch, Event, Open, Target};

use crate::apps::{End, Ended};
use crate::nodes;
use crate::world::{Happening, World};

impl World {
    pub fn open(&mut self, serial: usize) {
        let plan = self.streams[serial].plan.clone();
        let peer = self.schedule.nodes[plan.acceptor].number;
        let open = Open {
            report_connected: plan.report_connected,
            ..Open::new(
                plan.class,
                Target::Name {
                    host: format!("s{serial}"),
                    port: 80,
                },
            )
        };
        let key = self.call_for(plan.opener, peer, |engine, now| {
            engine.open(now, peer, open)
        });
        match key {
            Some(Ok(key)) => {
                self.streams[serial].ends[0].key = Some(key);
                self.nodes[plan.opener].streams.insert(key, (serial, 0));
                let pause = self.random.ms(0, 4);
                self.at(
                    self.now + pause,
                    Happening::Work {
                        stream: serial,
                        end: 0,
                    },
                );
            }
            // The node is stopped, or has as many streams as it may have.
            refused => {
                assert!(
                    !matches!(refused, Some(Err(_))) || self.is_tight(serial),
                    "{refused:?}"
                );
                self.streams[serial].ends[0].ended = Some(Ended::Given);
            }
        }
    }

    /// Whether one end of the stream takes only a few streams.
    pub fn is_tight(&self, serial: usize) -> bool {
        let stream = &self.streams[serial];
        let most = |end| self.schedule.nodes[stream.node_of(end)].max_streams;
        most(0).min(most(1)) <= self.streams.len()
    }

    pub fn stream_event(&mut self, node: usize, peer: u64, epoch: Epoch, event: &Event) {
        let id = match event {
            Event::Opened { id, open } => {
                let id = *id;
                let key = StreamKey { peer, epoch, id };
                return self.accept(node, key, open);
            }
            Event::Connected(id)
            | Event::Readable(id)
            | Event::Writable(id)
            | Event::PeerFinished(id)
            | Event::Stopped { id, .. }
            | Event::Reset { id, .. }
            | Event::Closed(id) => *id,
            Event::PeerRestarted { .. } | Event::AnnouncementChanged(_) => return,
            Event::OpenSealed(_) | Event::OpenAcknowledged(_) => panic!("none is traced here"),
            Event::IncarnationRaised { .. } => panic!("no node loses count here"),
        };
        let key = StreamKey { peer, epoch, id };
        let Some(&(serial, end)) = self.nodes[node].streams.get(&key) else {
            panic!("node {node}: {event:?} of a stream that is not here");
        };
        self.streams[serial].on_event(serial, end, event);
        self.work_at(self.now, serial, end);
    }

    pub fn accept(&mut self, node: usize, key: StreamKey, open: &Open) {
        let Target::Name { host, .. } = &open.target else {
            panic!("{open:?}");
        };
        let serial: usize = host[1..].parse().expect("a serial number");
        let stream = &mut self.streams[serial];
        assert_eq!(stream.plan.acceptor, node);
        // A restarted node may be asked again, by an OPEN whose custody signal was lost
        // with its former run and whose sender had not heard from it yet.
        let again = stream.ends[1].ended.is_some();
        assert!(
            stream.ends[1].key.is_none() && (!again || self.nodes[node].incarnation > 1),
            "stream {serial} is opened twice"
        );
        stream.written_before = stream.written_before.max(stream.ends[1].written);
        stream.ends[1] = End {
            key: Some(key),
            ..End::new()
        };
        self.nodes[node].streams.insert(key, (serial, 1));
        let connects = self.random.ms(0, 100);
        self.at(
            self.now + connects,
            Happening::Work {
                stream: serial,
                end: 1,
            },
        );
    }

    pub fn work_at(&mut self, at: Duration, stream: usize, end: usize) {
        let own = &mut self.streams[stream].ends[end];
        if own.due.is_none_or(|due| due > at) {
            own.due = Some(at);
            self.at(at, Happening::Work { stream, end });
        }
    }

    pub fn work(&mut self, serial: usize, end: usize) {
        let node = self.streams[serial].node_of(end);
        let mut stream = self.streams[serial].clone();
        stream.ends[end].due = None;
        let first = stream.ends[end].written + stream.ends[end].received == 0;
        // Later events find the stream as the application left it.
        let now = self.instant();
        let peer = self.schedule.nodes[stream.node_of(1 - end)].number;
        let shard = nodes::shard_to(&self.schedule, node, peer);
        let Some(engine) = self.nodes[node].engines.get_mut(shard) else {
            return;
        };
        if let Some(key) = stream.ends[end].key.filter(|_| end == 1 && first) {
            let _ = engine.connected(now, key);
        }
        let again = stream.work(serial, end, engine, now);
        self.streams[serial] = stream;
        self.call(node, shard, |_, _| ());
        if let Some(pause) = again {
            self.work_at(self.now + pause, serial, end);
        }
    }
}
