//! CDNI metadata: documents of a source, and lookups for requests.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use underpass_cdni::{MOST_OBJECT_BYTES, Metadata, Size};

// The first octet says where the index ends and the documents that it links to begin.
fuzz_target!(|data: &[u8]| {
    let Some((cut, data)) = data.split_first() else {
        return;
    };
    let (index, linked) = data.split_at(data.len() * usize::from(*cut) / 255);
    let mut metadata = Metadata::new("http://a.example/index");
    let mut now = Instant::now();
    for target in ["/a/b.mp4?x=1", "/", "/*"] {
        // An index, and three documents that link to each other.
        for _ in 0..5 {
            if let Size::Known(bytes) = metadata.size(now, "a.example", target) {
                assert!(bytes <= MOST_OBJECT_BYTES);
            }
            while let Some(url) = metadata.poll_wanted() {
                assert!(url.starts_with("http://a.example/"), "{url}");
                let body = if url.ends_with("/index") { index } else { linked };
                let read = metadata.reader(&url).read(body);
                metadata.fetched(now, &url, read, Some(Duration::from_secs(20)));
            }
            now += Duration::from_secs(7);
        }
    }
    let figures = metadata.figures();
    assert!(figures.documents <= 256, "{figures:?}");
});
