//! Decisions about flows, for operators who follow them.
//!
//! While nobody follows, a flow costs one check of a counter. Each reader names a filter for the
//! flows and has a queue of bounded length. Events that do not fit are counted, and nothing waits
//! for a slow reader.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ipnet::IpNet;
use thiserror::Error;
use tokio::sync::mpsc;
use underpass_cla::Class;

use crate::config::HostPattern;
use crate::stream::{PathChoice, StreamName, Target};

/// Operators who ask at once.
const MOST_READERS: usize = 8;
/// What waits for one of them.
const MOST_WAITING: usize = 256;
/// Most paths of a reader's flows whose changes are reported to it.
const MOST_PATHS: usize = 64;

/// Selects the flows that match all the given fields.
#[derive(Clone, Debug, Default)]
pub struct FlowFilter {
    /// Of clients in this network.
    pub client: Option<IpNet>,
    /// To addresses in this network, or to this host.
    pub destination: Option<Destination>,
    /// Of the class that this rule has given them.
    pub rule: Option<String>,
}

/// Where a flow goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// By address.
    Network(IpNet),
    /// By name.
    Host(HostPattern),
}

impl FlowFilter {
    fn may_match(&self, client: SocketAddr) -> bool {
        let ip = client.ip().to_canonical();
        self.client.is_none_or(|network| network.contains(&ip))
    }

    fn matches(&self, flow: &FlowDecision) -> bool {
        let named = self.rule.as_deref();
        let there = self.destination.as_ref().is_none_or(|wanted| match wanted {
            Destination::Network(network) => {
                flow.target.ip().is_some_and(|ip| network.contains(&ip))
            }
            Destination::Host(pattern) => {
                let host = flow.host.as_deref().or_else(|| flow.target.name());
                host.is_some_and(|host| pattern.matches(host))
            }
        });
        self.may_match(flow.client) && there && (named.is_none() || flow.rule.as_deref() == named)
    }
}

/// Why something was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A flow begins.
    Begins,
    /// A flow has become larger than expected: the path of its rest is chosen again.
    Larger,
    /// A flow is not complete long after its estimated time: the path of its rest is chosen again.
    Late,
    /// A rule has given another class to what follows.
    Class,
}

impl Cause {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Begins => "begins",
            Cause::Larger => "larger-than-expected",
            Cause::Late => "later-than-expected",
            Cause::Class => "class-changed",
        }
    }
}

/// From where a flow's size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeSource {
    /// The flow says so itself.
    Told,
    /// A source of metadata says so (RFC 8006).
    Metadata,
    /// The mean of the last flows of its host and type.
    Learned,
    /// Nothing is known: the usual size of an object of the web.
    Assumed,
    /// The flow has exceeded its expected size, and is assumed to be half complete.
    Doubled,
}

impl SizeSource {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            SizeSource::Told => "told",
            SizeSource::Metadata => "metadata",
            SizeSource::Learned => "learned",
            SizeSource::Assumed => "assumed",
            SizeSource::Doubled => "doubled",
        }
    }
}

/// What was decided about a flow.
#[derive(Clone, Debug)]
pub struct FlowDecision {
    /// Why.
    pub cause: Cause,
    /// Its stream, where it has one.
    pub stream: Option<StreamName>,
    /// Who has asked for it.
    pub client: SocketAddr,
    /// Where it goes.
    pub target: Target,
    /// The host's name, if it is known.
    pub host: Option<Arc<str>>,
    /// Type and subtype; empty if that is not known.
    pub content_type: Arc<str>,
    /// What remains of it, bytes; none if only the class has changed.
    pub size_bytes: Option<u64>,
    /// From where that is known.
    pub size_from: Option<SizeSource>,
    /// The rule of this node that has given its class, if any.
    pub rule: Option<Arc<str>>,
    /// Its class; none if it still has its class from before an upgrade.
    pub class: Option<Class>,
    /// What the node has compared and chosen.
    pub choice: Option<PathChoice>,
}

/// What has become of a path that was compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathNews {
    /// The path's or terminal's name.
    pub path: String,
    /// blocked, free or moved.
    pub change: &'static str,
    /// Who says so, or why.
    pub reason: &'static str,
    /// The class that has moved, and to which path.
    pub moved: Option<(Class, String)>,
}

/// What a reader is told.
#[derive(Clone, Debug)]
pub enum News {
    /// Something was decided.
    Flow(Arc<FlowDecision>),
    /// Something has happened to a path of such a flow.
    Path(Arc<PathNews>),
}

/// There are too many readers.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{MOST_READERS} others are told already: try again when one of them has ended")]
pub struct TooManyReaders;

/// Who asks, and what they are told.
#[derive(Debug, Default)]
pub struct Decisions {
    /// How many ask: looked at without a lock.
    asking: AtomicUsize,
    readers: Mutex<Readers>,
}

#[derive(Debug, Default)]
struct Readers {
    next: u64,
    open: Vec<Reader>,
}

#[derive(Debug)]
struct Reader {
    number: u64,
    filter: FlowFilter,
    paths: BTreeSet<String>,
    queue: mpsc::Sender<News>,
    missed: Arc<AtomicUsize>,
}

/// The events for one reader; dropping this ends them.
#[derive(Debug)]
pub struct Asked {
    number: u64,
    queue: mpsc::Receiver<News>,
    missed: Arc<AtomicUsize>,
    decisions: Arc<Decisions>,
}

impl Decisions {
    /// Follows flows from now on.
    ///
    /// # Errors
    /// When there are too many readers.
    pub fn ask(self: &Arc<Self>, filter: FlowFilter) -> Result<Asked, TooManyReaders> {
        let mut readers = self.readers.lock().unwrap();
        if readers.open.len() >= MOST_READERS {
            return Err(TooManyReaders);
        }
        let (sender, queue) = mpsc::channel(MOST_WAITING);
        let (number, missed) = (readers.next, Arc::default());
        readers.next += 1;
        readers.open.push(Reader {
            number,
            filter,
            paths: BTreeSet::new(),
            queue: sender,
            missed: Arc::clone(&missed),
        });
        self.asking.store(readers.open.len(), Ordering::Relaxed);
        Ok(Asked {
            number,
            queue,
            missed,
            decisions: self.clone(),
        })
    }

    /// Whether a reader may follow flows of this client.
    pub(super) fn wants(&self, client: SocketAddr) -> bool {
        self.asking.load(Ordering::Relaxed) > 0 && {
            let readers = self.readers.lock().unwrap();
            let mut open = readers.open.iter();
            open.any(|reader| reader.filter.may_match(client))
        }
    }

    pub(super) fn tell(&self, flow: FlowDecision) {
        let flow = Arc::new(flow);
        for reader in &mut self.readers.lock().unwrap().open {
            if reader.filter.matches(&flow) {
                let compared = flow.choice.iter().flat_map(|choice| &choice.compared);
                for path in compared.map(|path| &path.path) {
                    if reader.paths.len() < MOST_PATHS && !reader.paths.contains(path) {
                        reader.paths.insert(path.clone());
                    }
                }
                reader.push(News::Flow(flow.clone()));
            }
        }
    }

    /// Reports a change of a path to the readers that follow a flow that could use it.
    pub fn path_changed(&self, news: PathNews) {
        if self.asking.load(Ordering::Relaxed) == 0 {
            return;
        }
        let news = Arc::new(news);
        for reader in &self.readers.lock().unwrap().open {
            if reader.paths.contains(&news.path) {
                reader.push(News::Path(news.clone()));
            }
        }
    }
}

impl Reader {
    fn push(&self, news: News) {
        if self.queue.try_send(news).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Asked {
    /// The next event, and the number of events left out since the last one.
    pub async fn next(&mut self) -> Option<(News, usize)> {
        let news = self.queue.recv().await?;
        Some((news, self.missed.swap(0, Ordering::Relaxed)))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut readers = self.decisions.readers.lock().unwrap();
        readers.open.retain(|reader| reader.number != self.number);
        let asking = readers.open.len();
        self.decisions.asking.store(asking, Ordering::Relaxed);
    }
}
