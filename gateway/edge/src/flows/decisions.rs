//! What was decided about flows, told to operators who ask.
//!
//! While nobody asks, a flow costs one look at a number. Each who asks says which
//! flows are meant, and has a queue of bounded length; what does not fit is
//! counted, and nobody waits for a reader that is slow.

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
/// Paths of a reader's flows whose changes it is told.
const MOST_PATHS: usize = 64;

/// Which flows are meant: those that match all that is given.
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
    /// A flow has become larger than was expected: its rest is decided on anew.
    Larger,
    /// A flow is not complete long after it should have been: its rest is decided on anew.
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
    /// The mean of the last ones of its host and type.
    Learned,
    /// From nowhere: what most objects of the web have.
    Assumed,
    /// It has exceeded that, and is taken to be half over.
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
    /// What is to come of it, bytes; none where only the class has changed.
    pub size_bytes: Option<u64>,
    /// From where that is known.
    pub size_from: Option<SizeSource>,
    /// The rule that has given it its class, if one of this node has.
    pub rule: Option<Arc<str>>,
    /// Its class; none if it has the one of before an upgrade.
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

/// What one who asks is told; nothing more once this is dropped.
#[derive(Debug)]
pub struct Asked {
    number: u64,
    queue: mpsc::Receiver<News>,
    missed: Arc<AtomicUsize>,
    decisions: Arc<Decisions>,
}

impl Decisions {
    /// Tells of flows from now on.
    ///
    /// # Errors
    /// When too many ask.
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

    /// Whether anybody may want to know of a client's flows.
    pub(super) fn wants(&self, client: SocketAddr) -> bool {
        self.asking.load(Ordering::Relaxed) > 0 && {
            let readers = self.readers.lock().unwrap();
            let mut open = readers.open.iter();
            open.any(|reader| reader.filter.may_match(client))
        }
    }

    /// Tells of a decision.
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

    /// Tells of a path, those who were told of a flow that could go by it.
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
    /// What comes next, and how much was left out since the last time.
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
