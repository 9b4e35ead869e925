//! The documents that are there, and what is wanted next: without I/O and clock.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::document::{Document, DocumentError, Said};
use crate::pattern::Effort;

/// Documents that are kept, and what they take of memory together, bytes; those
/// that were longest not asked for go first.
const MOST_DOCUMENTS: usize = 256;
const MOST_BYTES: usize = 16 << 20;
/// Documents that lead from one to the other, the index included.
const MOST_LINKS: usize = 4;
/// Documents that wait to be got; more are wanted when they are next asked for.
const MOST_WANTED: usize = 64;
/// What one question may cost, in steps of comparing a pattern.
const EFFORT: u32 = 100_000;
/// How long a document holds, whatever its server says.
const LEAST_LIFETIME: Duration = Duration::from_secs(10);
const MOST_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Where the server says nothing.
const USUAL_LIFETIME: Duration = Duration::from_secs(300);
/// The last part of a lifetime, in which it is got again.
const RENEWAL_PART: u32 = 5;
/// After a failure, and the longest pause after several.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// What is known of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Its size, bytes.
    Known(u64),
    /// The metadata say nothing of it, or nothing that can be used.
    Untold,
    /// A document is missing, and is going to be got.
    Awaited,
}

/// Counts for status and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Documents that are kept.
    pub documents: usize,
    /// What they take of memory, bytes, about.
    pub bytes: usize,
    /// Questions that had a size for an answer.
    pub known: u64,
    /// Questions of which the metadata say nothing.
    pub untold: u64,
    /// Questions that came before their document.
    pub awaited: u64,
    /// Documents that were got.
    pub fetched: u64,
    /// Documents that could not be got, or were refused.
    pub failed: u64,
    /// What was wrong with the last document that failed; none since one was got.
    pub error: Option<String>,
}

/// CDNI metadata of one source.
#[derive(Debug)]
pub struct Metadata {
    index: String,
    /// Scheme and authority of the index: links lead nowhere else.
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
    /// Until when it holds.
    expires: Option<Instant>,
    /// From when on it is to be got again.
    renewal: Option<Instant>,
    /// It is wanted, or under way.
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
    /// Nothing yet, of the HostIndex at this address
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

    /// The size of the object at `target`, a path with its query, of `host`. Its
    /// answer is of what is there.
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
                // One that cannot be got is not waited for.
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
        // A loop, or more documents than are gone through.
        Size::Untold
    }

    /// Has a document got if it is time.
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

    /// The address of the next document that is to be got; [`Self::fetched`] or
    /// [`Self::failed`] has to follow.
    pub fn poll_wanted(&mut self) -> Option<String> {
        loop {
            let url = self.wanted.pop_front()?;
            // It may have been forgotten since.
            if self.entries.get(&url).is_some_and(|entry| entry.awaited) {
                return Some(url);
            }
        }
    }

    /// What reads the document at an address.
    pub fn reader(&self, url: &str) -> Reader {
        Reader {
            is_index: url == self.index,
        }
    }

    /// A document has come and was read; it holds for this long by its server's
    /// word.
    pub fn fetched(&mut self, now: Instant, url: &str, read: Read, lifetime: Option<Duration>) {
        match read.0 {
            Ok(document) => self.keep(now, url, document, lifetime),
            Err(error) => self.failed(now, url, &error.to_string()),
        }
    }

    /// A document could not be got.
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

    /// Forgets what was longest not asked for until so much more has room.
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

/// Reads documents. A large one takes a while, in which sizes are asked for: so it is
/// read apart from [`Metadata`].
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    is_index: bool,
}

/// A document that was read, or why it is not used.
#[derive(Debug)]
pub struct Read(Result<Document, DocumentError>);

impl Reader {
    /// Reads one.
    pub fn read(self, body: &[u8]) -> Read {
        Read(match self.is_index {
            true => Document::index(body),
            false => Document::rules(body),
        })
    }
}

/// Scheme and authority of an address.
fn origin(url: &str) -> &str {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..].find('/').map(|at| authority + at);
    &url[..end.unwrap_or(url.len())]
}

/// Where a link leads: a path of the source, or an address there. None for what
/// would have this node ask others.
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const INDEX: &str = "http://cdni.example/index";
    const HOST: &str = "video.example";

    struct Source {
        metadata: Metadata,
        now: Instant,
    }

    impl Source {
        fn new() -> Source {
            Source {
                metadata: Metadata::new(INDEX),
                now: Instant::now(),
            }
        }

        fn size(&mut self, target: &str) -> Size {
            self.metadata.size(self.now, HOST, target)
        }

        fn wanted(&mut self) -> Vec<String> {
            std::iter::from_fn(|| self.metadata.poll_wanted()).collect()
        }

        fn comes(&mut self, url: &str, document: &Value, seconds: u64) {
            let lifetime = Some(Duration::from_secs(seconds));
            let body = document.to_string();
            let read = self.metadata.reader(url).read(body.as_bytes());
            self.metadata.fetched(self.now, url, read, lifetime);
        }

        fn passes(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }
    }

    fn index_with(host_metadata: &Value) -> Value {
        json!({"hosts": [{"host": HOST, "host-metadata": host_metadata}]})
    }

    fn sized(bytes: u64) -> Value {
        json!({"metadata": [{
            "generic-metadata-type": "underpass.ObjectSize",
            "generic-metadata-value": {"bytes": bytes},
        }]})
    }

    #[test]
    fn a_size_is_known_once_its_documents_have_come_and_is_asked_for_once() {
        let mut source = Source::new();
        assert_eq!(source.size("/a"), Size::Awaited);
        assert_eq!(source.size("/a"), Size::Awaited);
        assert_eq!(source.wanted(), [INDEX]);
        source.comes(INDEX, &index_with(&json!({"href": "/host"})), 100);
        assert_eq!(source.size("/a"), Size::Awaited);
        assert_eq!(source.wanted(), ["http://cdni.example/host"]);
        source.comes("http://cdni.example/host", &sized(7_000), 100);
        assert_eq!(source.size("/a"), Size::Known(7_000));
        assert_eq!(
            source.metadata.size(source.now, "Video.Example", "/"),
            Size::Known(7_000)
        );
        assert_eq!(
            source.metadata.size(source.now, "other.example", "/"),
            Size::Untold
        );
        assert!(source.wanted().is_empty());
        assert_eq!(source.metadata.figures().documents, 2);
    }

    #[test]
    fn a_document_is_renewed_before_its_end_and_not_used_behind_it() {
        let mut source = Source::new();
        source.size("/a");
        source.wanted();
        source.comes(INDEX, &index_with(&sized(5)), 100);
        source.passes(79);
        assert_eq!(source.size("/a"), Size::Known(5));
        assert!(source.wanted().is_empty());
        source.passes(1);
        assert_eq!(source.size("/a"), Size::Known(5));
        assert_eq!(source.wanted(), [INDEX]);
        source.passes(20);
        assert_eq!(source.size("/a"), Size::Awaited);
        source.comes(INDEX, &index_with(&sized(6)), 100);
        assert_eq!(source.size("/a"), Size::Known(6));
    }

    #[test]
    fn lifetimes_are_bounded_on_both_sides() {
        let mut source = Source::new();
        source.size("/a");
        source.wanted();
        source.comes(INDEX, &index_with(&sized(5)), 0);
        assert_eq!(source.size("/a"), Size::Known(5));
        assert!(source.wanted().is_empty(), "it is not asked for each time");
        source.passes(10);
        source.size("/a");
        assert_eq!(source.wanted(), [INDEX]);
        source.comes(INDEX, &index_with(&sized(5)), u64::MAX);
        source.passes(MOST_LIFETIME.as_secs());
        assert_eq!(source.size("/a"), Size::Awaited);
    }

    #[test]
    fn what_cannot_be_got_is_asked_for_ever_more_seldom() {
        let mut source = Source::new();
        source.size("/a");
        let mut asked = 0;
        for _ in 0..3_600 {
            for url in source.wanted() {
                asked += 1;
                source.metadata.failed(source.now, &url, "404");
            }
            assert_ne!(source.size("/a"), Size::Known(0));
            source.passes(1);
        }
        assert!((8..15).contains(&asked), "{asked} times in an hour");
        assert!(source.metadata.figures().error.unwrap().contains("404"));
    }

    #[test]
    fn a_loop_of_links_ends_and_says_nothing() {
        let mut source = Source::new();
        source.size("/a");
        source.wanted();
        let to = |href: &str| json!({"paths": [{"path-pattern": {"pattern": "*"}, "path-metadata": {"href": href}}]});
        source.comes(INDEX, &index_with(&to("/x")), 100);
        for _ in 0..10 {
            source.size("/a");
            for url in source.wanted() {
                let next = if url.ends_with("/x") { "/y" } else { "/x" };
                source.comes(&url, &to(next), 100);
            }
        }
        assert_eq!(source.size("/a"), Size::Untold);
        assert_eq!(source.metadata.figures().documents, 3);
        assert!(source.wanted().is_empty());
    }

    #[test]
    fn links_lead_nowhere_but_to_the_source() {
        for href in [
            "http://169.254.169.254/latest",
            "http://cdni.example.evil/x",
            "http://cdni.example:80@evil/x",
            "https://cdni.example/x",
            "//evil/x",
            "x",
            "/a b",
            "/a\r\nHost: evil",
            "",
        ] {
            let mut source = Source::new();
            source.size("/a");
            source.wanted();
            source.comes(INDEX, &index_with(&json!({"href": href})), 100);
            assert_eq!(source.size("/a"), Size::Untold, "{href:?}");
            assert!(source.wanted().is_empty(), "{href:?}");
        }
    }

    #[test]
    fn a_size_from_above_counts_while_the_linked_document_cannot_be_got() {
        let mut source = Source::new();
        source.size("/a");
        source.wanted();
        let mut host = sized(9);
        host["paths"] =
            json!([{"path-pattern": {"pattern": "*"}, "path-metadata": {"href": "/gone"}}]);
        source.comes(INDEX, &index_with(&host), 100);
        assert_eq!(source.size("/a"), Size::Awaited);
        for url in source.wanted() {
            source.metadata.failed(source.now, &url, "404");
        }
        assert_eq!(source.size("/a"), Size::Known(9));
    }

    #[test]
    fn who_asks_for_much_at_once_fills_no_queue() {
        let mut source = Source::new();
        source.size("/a");
        source.wanted();
        let paths: Vec<Value> = (0..5_000)
            .map(|n| json!({"path-pattern": {"pattern": format!("/{n}")}, "path-metadata": {"href": format!("/{n}")}}))
            .collect();
        source.comes(INDEX, &index_with(&json!({"paths": paths})), 10_000);
        for n in 0..5_000 {
            assert_eq!(source.size(&format!("/{n}")), Size::Awaited);
        }
        assert_eq!(source.wanted().len(), MOST_WANTED);
    }

    #[test]
    fn documents_are_bounded_in_number_and_in_bytes_and_the_index_stays() {
        let mut source = Source::new();
        source.size("/a");
        source.wanted();
        let paths: Vec<Value> = (0..1_000)
            .map(|n| json!({"path-pattern": {"pattern": format!("/{n}")}, "path-metadata": {"href": format!("/{n}")}}))
            .collect();
        source.comes(INDEX, &index_with(&json!({"paths": paths})), 10_000);
        let long = "x".repeat(1_000);
        let large: Vec<Value> = (0..500)
            .map(|_| json!({"path-pattern": {"pattern": long}, "path-metadata": {}}))
            .collect();
        for n in 0..1_000 {
            source.size(&format!("/{n}"));
            let paths = if n < 40 { &large[..] } else { &large[..1] };
            for url in source.wanted() {
                source.comes(&url, &json!({"paths": paths}), 10_000);
            }
            if n == 39 {
                let figures = source.metadata.figures();
                assert!(figures.bytes > MOST_BYTES / 2, "{figures:?}");
            }
            let figures = source.metadata.figures();
            assert!(figures.documents <= MOST_DOCUMENTS && figures.bytes <= MOST_BYTES);
        }
        let known = source.metadata.entries.contains_key(INDEX);
        assert!(known && source.metadata.entries.len() <= MOST_DOCUMENTS);
    }

    fn any_document() -> impl Strategy<Value = Vec<u8>> {
        let index = |name| index_with(&json!({"href": format!("/{name}")}));
        let rules = |(pattern, name): (String, String)| {
            json!({"paths": [{
                "path-pattern": {"pattern": pattern},
                "path-metadata": {"href": format!("/{name}")},
            }]})
        };
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            "[xy]".prop_map(move |name| index(name).to_string().into_bytes()),
            ("[*?$/a]{0,4}", "[xy]").prop_map(move |link| rules(link).to_string().into_bytes()),
        ]
    }

    proptest! {
        /// Whatever a source says, sizes are to be believed and links are its own.
        #[test]
        fn no_document_confuses_it(bodies in proptest::collection::vec(any_document(), 1..12)) {
            let mut source = Source::new();
            for body in bodies {
                if let Size::Known(bytes) = source.size("/a") {
                    prop_assert!(bytes <= crate::document::MOST_OBJECT_BYTES);
                }
                for url in source.wanted() {
                    prop_assert!(url.starts_with("http://cdni.example/"));
                    let read = source.metadata.reader(&url).read(&body);
                    source.metadata.fetched(source.now, &url, read, None);
                }
                source.passes(11);
            }
        }
    }
}
