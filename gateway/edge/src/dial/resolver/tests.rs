use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::net::UdpSocket;

use super::*;

/// A host's configuration, and a name server that counts its queries.
struct World {
    folder: TempDir,
    resolver: Resolver,
    queries: Arc<AtomicUsize>,
}

impl World {
    async fn new(hosts: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let sources = Sources {
            hosts: folder.path().join("hosts"),
            resolv_conf: folder.path().join("resolv.conf"),
            port: server.local_addr().unwrap().port(),
        };
        std::fs::write(&sources.hosts, hosts).unwrap();
        std::fs::write(&sources.resolv_conf, "nameserver 127.0.0.1\n").unwrap();
        let queries = Arc::<AtomicUsize>::default();
        tokio::spawn(serve(server, queries.clone()));
        World {
            resolver: Resolver::new(sources),
            folder,
            queries,
        }
    }

    async fn resolve(&self, host: &str) -> Result<Vec<String>, FailureCode> {
        let found = self.resolver.resolve(host).await;
        let found = found.map(|found| found.iter().map(IpAddr::to_string).collect());
        found.map_err(|failure| failure.code)
    }

    fn queries(&self) -> usize {
        self.queries.swap(0, Ordering::Relaxed)
    }
}

/// Answers queries for A (RFC 1035): the first label is the TTL in seconds,
/// "unknown", "broken" or "silent". No name has any other record.
async fn serve(socket: UdpSocket, queries: Arc<AtomicUsize>) {
    let mut datagram = [0; 512];
    while let Ok((length, client)) = socket.recv_from(&mut datagram).await {
        queries.fetch_add(1, Ordering::Relaxed);
        let query = &datagram[..length];
        let label = usize::from(query[12]);
        let first = String::from_utf8_lossy(&query[13..13 + label]).into_owned();
        let end = 12 + query[12..].iter().position(|octet| *octet == 0).unwrap() + 5;
        let is_a = query[end - 3] == 1;
        let code = match first.as_str() {
            "silent" => continue,
            "unknown" => 3,
            "broken" => 2,
            _ => 0,
        };
        let ttl: Option<u32> = first.parse().ok().filter(|_| is_a);
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80 | code, 0, 1, 0, ttl.is_some().into(), 0, 0, 0, 0]);
        answer.extend(&query[12..end]);
        if let Some(ttl) = ttl {
            answer.extend([0xc0, 0x0c, 0, 1, 0, 1]);
            answer.extend(ttl.to_be_bytes());
            answer.extend([0, 4, 192, 0, 2, 1]);
        }
        let _ = socket.send_to(&answer, client).await;
    }
}

#[tokio::test]
async fn an_answer_is_kept_for_as_long_as_it_says() {
    let world = World::new("").await;
    for _ in 0..3 {
        assert_eq!(world.resolve("60.test").await.unwrap(), ["192.0.2.1"]);
    }
    // A and AAAA; the second may be queried each time, since its answer has no TTL.
    let kept = world.queries();
    assert!(kept <= 4, "{kept}");
    for _ in 0..3 {
        assert_eq!(world.resolve("0.test").await.unwrap(), ["192.0.2.1"]);
    }
    assert_eq!(world.queries(), 6);
}

#[tokio::test]
async fn the_hosts_file_comes_first_and_is_read_anew() {
    let world = World::new("192.0.2.9 Box box.test # not-a-name\n2001:db8::9 box.test\n").await;
    let both = ["2001:db8::9", "192.0.2.9"];
    assert_eq!(world.resolve("box.test").await.unwrap(), both);
    assert_eq!(world.resolve("box").await.unwrap(), ["192.0.2.9"]);
    assert_eq!(world.queries(), 0);
    let hosts = world.folder.path().join("hosts");
    std::fs::write(&hosts, "192.0.2.10 box.test\n").unwrap();
    // Both versions may have been written within one tick of the file system's clock.
    let written = std::fs::File::options().write(true).open(&hosts).unwrap();
    let later = SystemTime::now() + Duration::from_secs(10);
    written.set_modified(later).unwrap();
    tokio::time::sleep(FRESH).await;
    assert_eq!(world.resolve("box.test").await.unwrap(), ["192.0.2.10"]);
}

#[tokio::test]
async fn who_says_no_and_who_says_nothing_are_told_apart() {
    let world = World::new("").await;
    let code = async |host| world.resolve(host).await.unwrap_err();
    assert_eq!(code("unknown.test").await, FailureCode::UnknownHost);
    assert_eq!(code("nothing.test").await, FailureCode::UnknownHost);
    assert_eq!(code("broken.test").await, FailureCode::TimedOut);
}

#[tokio::test]
async fn a_look_up_that_is_given_up_leaves_nothing_behind() {
    let world = World::new("").await;
    let sockets = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = sockets();
    let many: Vec<_> = (0..200)
        .map(|number| {
            let resolver = world.resolver.clone();
            tokio::spawn(async move { resolver.resolve(&format!("silent.n{number}.test")).await })
        })
        .collect();
    // Other tests of this process may have closed some since.
    while world.queries.load(Ordering::Relaxed) < 200 || sockets() < before + 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    many.iter().for_each(|look_up| look_up.abort());
    // Other tests of this process have sockets, too.
    let closed = async {
        while sockets() >= before + 50 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let closed = tokio::time::timeout(Duration::from_secs(60), closed).await;
    assert!(closed.is_ok(), "{before} to {}", sockets());
}
