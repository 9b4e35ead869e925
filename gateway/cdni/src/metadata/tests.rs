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
fn links_are_of_the_host_also_where_the_index_has_no_path() {
    for index in ["http://cdni.example?of=/hosts", "http://cdni.example?hosts"] {
        let mut metadata = Metadata::new(index);
        let now = Instant::now();
        assert_eq!(metadata.size(now, HOST, "/a"), Size::Awaited);
        assert_eq!(metadata.poll_wanted().as_deref(), Some(index));
        let body = index_with(&json!({"href": "/host"})).to_string();
        let read = metadata.reader(index).read(body.as_bytes());
        metadata.fetched(now, index, read, None);
        assert_eq!(metadata.size(now, HOST, "/a"), Size::Awaited);
        let linked = metadata.poll_wanted();
        assert_eq!(linked.as_deref(), Some("http://cdni.example/host"));
    }
}

#[test]
fn a_size_from_above_counts_while_the_linked_document_cannot_be_got() {
    let mut source = Source::new();
    source.size("/a");
    source.wanted();
    let mut host = sized(9);
    host["paths"] = json!([{"path-pattern": {"pattern": "*"}, "path-metadata": {"href": "/gone"}}]);
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
    /// Whatever a source says, sizes stay plausible and links stay within the source.
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
