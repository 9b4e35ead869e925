//! Another process takes over a node whose addresses have changed.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;

use crate::node::{HUB, Node, edge, free_port};

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

#[test]
fn an_address_that_is_taken_leaves_the_node_to_the_process_that_has_it() {
    let [own, other] = [(); 2].map(|()| free_port());
    let mut node = Node::start(&[HUB, &edge(own)].concat(), |_| {});
    let refused = |node: &Node| {
        let before = node.id();
        let answer = node.ask("POST", "/v1/upgrade", "");
        assert_eq!(answer.status, 409, "{}\n{}", answer.body, node.log());
        assert_eq!(node.ask("GET", "/v1/status", "").status, 200);
        assert_eq!(node.id(), before);
        TcpStream::connect(format!("127.0.0.1:{own}")).unwrap();
        answer.body
    };
    // Another program has the listener's address.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("127.0.0.1:{}", port_of(&taken));
    node.reconfigure(&format!("127.0.0.1:{own}"), &address);
    assert!(refused(&node).contains(&address));
    // The address is the running process's own, in another form.
    node.reconfigure(&address, &format!("0.0.0.0:{own}"));
    assert!(refused(&node).contains("0.0.0.0"));
    // A path in the file system can be taken in the same way.
    let socket = node.path().join("run/taken.sock");
    let _taken = UnixListener::bind(&socket).unwrap();
    let address = format!("127.0.0.1:{own}");
    node.reconfigure(&format!("0.0.0.0:{own}"), &address);
    node.reconfigure("run/api.sock", "run/taken.sock");
    assert!(refused(&node).contains("taken.sock"));
    node.reconfigure("run/taken.sock", "run/api.sock");
    // The next process gets a free address, and keeps all others.
    let changed = format!("127.0.0.1:{other}");
    node.reconfigure(&address, &changed);
    node.upgrade();
    TcpStream::connect(changed).unwrap();
    assert_eq!(node.ask("GET", "/v1/status", "").status, 200);
}
