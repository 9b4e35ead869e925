//! Keeps the fetched documents and says which are wanted next, without I/O or clock.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::document::{Document, DocumentError, Said};
use crate::pattern::Effort;

/// The most documents that are kept, and the most memory that they take together, bytes.
/// Those asked for longest ago are forgotten first.
const MOST_DOCUMENTS: usize = 256;
const MOST_BYTES: usize = 16 << 20;
/// The most documents that one lookup follows, the index included.
const MOST_LINKS: usize = 4;
/// The most documents that wait to be fetched; others are wanted again when next asked
/// for.
const MOST_WANTED: usize = 64;
/// The most that one question may cost, in steps of comparing a pattern.
const EFFORT: u32 = 100_000;
/// Bounds of the time for which a document is used, whatever its server says.
const LEAST_LIFETIME: Duration = Duration::from_secs(10);
const MOST_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// The lifetime if the server gives none.
const USUAL_LIFETIME: Duration = Duration::from_secs(300);
/// A document is fetched again in the last part (1/n) of its lifetime.
const RENEWAL_PART: u32 = 5;
/// The pause after a failure, and the longest pause after several.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The answer to a question for a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Its size, bytes.
    Known(u64),
    /// The metadata say nothing usable about it.
    Untold,
    /// A document is missing, and will be fetched.
    Awaited,
}

/// Counts for status and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Documents that are kept.
    pub documents: usize,
    /// The memory that they take, bytes, roughly.
    pub bytes: usize,
    /// Questions that were answered with a size.
    pub known: u64,
    /// Questions about which the metadata say nothing.
    pub untold: u64,
    /// Questions that came before their document was fetched.
    pub awaited: u64,
    /// Documents that were fetched.
    pub fetched: u64,
    /// Documents that could not be fetched, or were refused.
    pub failed: u64,
    /// The error of the last document that failed; none after a later success.
    pub error: Option<String>,
}

/// CDNI metadata of one source.
#[derive(Debug)]
pub struct Metadata {
    index: String,
    /// Scheme and authority of the index: links to anywhere else are refused.
    origin: String,
    entries: HashMap<String, Entry>,
    wanted: VecDeque<String>,
    bytes: usize,
    questions: u64,
    figures: Figures,
}

#[derive(Debug, Default)]
struct Entry {
    document: Option<Document>,
    bytes: usize,
    /// When the document expires.
    expires: Option<Instant>,
    /// When the document is to be fetched again.
    renewal: Option<Instant>,
    /// Whether the document is wanted or being fetched.
    awaited: bool,
    failures: u32,
    /// When it was last asked for, as a count of questions.
    asked: u64,
}

impl Entry {
    fn is_due(&self, now: Instant) -> bool {
        !self.awaited && self.renewal.is_none_or(|renewal| renewal <= now)
    }

    fn document(&self, now: Instant) -> Option<&Document> {
        let holds = self.expires.is_some_and(|expires| now < expires);
        self.document.as_ref().filter(|_| holds)
    }
}

impl Metadata {
    /// Metadata without documents yet, for the HostIndex at this URL
    /// (`http(s)://HOST[:PORT]/PATH`).
    pub fn new(index: &str) -> Metadata {
        Metadata {
            index: index.to_owned(),
            origin: origin(index).to_owned(),
            entries: HashMap::new(),
            wanted: VecDeque::new(),
            bytes: 0,
            questions: 0,
            figures: Figures::default(),
        }
    }

    /// The size of the object at `target` (a path with its query) of `host`, from the
    /// documents that are there now.
    pub fn size(&mut self, now: Instant, host: &str, target: &str) -> Size {
        self.questions += 1;
        let size = self.look(now, host, target);
        match size {
            Size::Known(_) => self.figures.known += 1,
            Size::Untold => self.figures.untold += 1,
            Size::Awaited => self.figures.awaited += 1,
        }
        size
    }

    fn look(&mut self, now: Instant, host: &str, target: &str) -> Size {
        let mut effort = Effort(EFFORT);
        let (mut url, mut above) = (self.index.clone(), None);
        for _ in 0..MOST_LINKS {
            self.ask(now, &url);
            let entry = self.entries.get(&url);
            let Some(entry) = entry else {
                return Size::Awaited;
            };
            let Some(document) = entry.document(now) else {
                // A document that cannot be fetched is not waited for.
                return match (entry.failures, above) {
                    (1.., Some(bytes)) => Size::Known(bytes),
                    (1.., None) => Size::Untold,
                    (0, _) => Size::Awaited,
                };
            };
            let said = match document {
                Document::Index(hosts) => {
                    let host = host.to_ascii_lowercase();
                    let next = hosts.get(&host);
                    match next {
                        Some(next) => next.say(target, above, &mut effort),
                        None => return Size::Untold,
                    }
                }
                Document::Rules(rules) => rules.say(target, above, &mut effort),
            };
            match said {
                None | Some(Said::Size(None)) => return Size::Untold,
                Some(Said::Size(Some(bytes))) => return Size::Known(bytes),
                Some(Said::Link(href, so_far)) => {
                    let Some(linked) = resolve(&self.origin, href) else {
                        return Size::Untold;
                    };
                    (url, above) = (linked, so_far);
                }
            }
        }
        // The links form a loop, or lead through too many documents.
        Size::Untold
    }

    /// Marks a document as wanted if it is due.
    fn ask(&mut self, now: Instant, url: &str) {
        let questions = self.questions;
        let is_full = self.wanted.len() >= MOST_WANTED;
        if let Some(entry) = self.entries.get_mut(url) {
            entry.asked = questions;
            if is_full || !entry.is_due(now) {
                return;
            }
            entry.awaited = true;
        } else {
            if is_full {
                return;
            }
            self.make_room(1, 0);
            let entry = Entry {
                awaited: true,
                asked: questions,
                ..Entry::default()
            };
            self.entries.insert(url.to_owned(), entry);
        }
        self.wanted.push_back(url.to_owned());
    }

    /// The URL of the next document to fetch; the caller must then call [`Self::fetched`]
    /// or [`Self::failed`].
    pub fn poll_wanted(&mut self) -> Option<String> {
        loop {
            let url = self.wanted.pop_front()?;
            // The entry may have been forgotten since.
            if self.entries.get(&url).is_some_and(|entry| entry.awaited) {
                return Some(url);
            }
        }
    }

    /// The parser for the document at a URL.
    pub fn reader(&self, url: &str) -> Reader {
        Reader {
            is_index: url == self.index,
        }
    }

    /// Takes a document that was fetched and parsed, with the lifetime that its server
    /// gave.
    pub fn fetched(&mut self, now: Instant, url: &str, read: Read, lifetime: Option<Duration>) {
        match read.0 {
            Ok(document) => self.keep(now, url, document, lifetime),
            Err(error) => self.failed(now, url, &error.to_string()),
        }
    }

    /// Notes that a document could not be fetched.
    pub fn failed(&mut self, now: Instant, url: &str, reason: &str) {
        self.figures.failed += 1;
        self.figures.error = Some(format!("{url}: {reason}"));
        if let Some(entry) = self.entries.get_mut(url) {
            entry.awaited = false;
            let doublings = entry.failures.min(8);
            entry.failures = entry.failures.saturating_add(1);
            let pause = (FIRST_PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE);
            entry.renewal = Some(now + pause);
        }
    }

    fn keep(&mut self, now: Instant, url: &str, document: Document, lifetime: Option<Duration>) {
        self.figures.fetched += 1;
        self.figures.error = None;
        self.forget(url);
        let bytes = document.bytes() + url.len() + size_of::<Entry>();
        if bytes > MOST_BYTES {
            return;
        }
        self.make_room(1, bytes);
        let lifetime = lifetime.unwrap_or(USUAL_LIFETIME);
        let lifetime = lifetime.clamp(LEAST_LIFETIME, MOST_LIFETIME);
        self.bytes += bytes;
        let entry = Entry {
            document: Some(document),
            bytes,
            expires: Some(now + lifetime),
            renewal: Some(now + lifetime - lifetime / RENEWAL_PART),
            asked: self.questions,
            ..Entry::default()
        };
        self.entries.insert(url.to_owned(), entry);
    }

    fn forget(&mut self, url: &str) {
        if let Some(entry) = self.entries.remove(url) {
            self.bytes -= entry.bytes;
        }
    }

    /// Forgets the entries asked for longest ago until there is room for so many more.
    fn make_room(&mut self, documents: usize, bytes: usize) {
        while self.entries.len() + documents > MOST_DOCUMENTS || self.bytes + bytes > MOST_BYTES {
            let index = &self.index;
            let others = self.entries.iter().filter(|(url, _)| *url != index);
            let oldest = others.min_by_key(|(_, entry)| entry.asked);
            let Some(oldest) = oldest.map(|(url, _)| url.clone()) else {
                return;
            };
            self.forget(&oldest);
        }
    }

    /// The counts at present.
    pub fn figures(&self) -> Figures {
        let kept = self.entries.values();
        Figures {
            documents: kept.filter(|entry| entry.document.is_some()).count(),
            bytes: self.bytes,
            ..self.figures.clone()
        }
    }
}

/// Parses documents. A large one takes a while, and questions come meanwhile: so parsing
/// needs no lock on [`Metadata`].
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    is_index: bool,
}

/// A document that was parsed, or why it is not used.
#[derive(Debug)]
pub struct Read(Result<Document, DocumentError>);

impl Reader {
    /// Parses a document.
    pub fn read(self, body: &[u8]) -> Read {
        Read(match self.is_index {
            true => Document::index(body),
            false => Document::rules(body),
        })
    }
}

/// Scheme and authority of a URL.
fn origin(url: &str) -> &str {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..].find(['/', '?']);
    let end = end.map(|at| authority + at);
    &url[..end.unwrap_or(url.len())]
}

/// The target of a link: a path of the source, or a URL there. None for a link that would
/// make this node ask other hosts.
fn resolve(of: &str, href: &str) -> Option<String> {
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain(href) {
        return None;
    }
    if href.starts_with('/') && !href.starts_with("//") {
        return Some(format!("{of}{href}"));
    }
    let rest = href.strip_prefix(of)?;
    rest.starts_with('/').then(|| href.to_owned())
}

#[cfg(test)]
mod tests;
