//! A registration lives as long as the process that made it, and leaves nothing behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use socket2::SockRef;
use underpass_hybla::{Control, LoadError, Loader, available};

/// Set for the process that registers and then waits to be killed.
const HOLDER: &str = "UNDERPASS_HYBLA_HOLDER";
const NAME: &str = Control::Hybla.name();

fn registered() -> bool {
    available().iter().any(|name| name == NAME)
}

/// The kernel ends a registration a moment after the last reference to it.
fn gone() -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while registered() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    !registered()
}

fn start_holder() -> io::Result<Child> {
    let mut child = Command::new(env::current_exe()?)
        .args(["--nocapture", "--exact", "hold"])
        .env(HOLDER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().expect("piped");
    BufReader::new(stdout)
        .lines()
        .map_while(Result::ok)
        .find(|line| line.contains("holding"))
        .ok_or_else(|| io::Error::other("the holder did not register"))?;
    Ok(child)
}

#[test]
fn hold() {
    if env::var_os(HOLDER).is_none() {
        return;
    }
    let mut loader = Loader::new();
    loader.ensure(Control::Hybla).expect("its parent could");
    println!("\nholding {}", loader.holds(Control::Hybla));
    let _ = io::stdin().read_to_end(&mut Vec::new());
}

#[test]
fn registration_ends_with_its_process_and_connections_outlive_it() {
    if env::var_os(HOLDER).is_some() {
        return;
    }
    if registered() {
        skipped::because(format!("another process has {NAME} registered"));
        return;
    }
    let mut loader = Loader::new();
    if let Err(error) = loader.ensure(Control::Hybla) {
        skipped::because(error);
        return;
    }
    drop(loader);
    assert!(gone(), "a dropped loader leaves {NAME} behind");

    let mut holder = start_holder().expect("the holder starts");
    let mut loader = Loader::new();
    loader.ensure(Control::Hybla).expect("already registered");
    assert!(
        !loader.holds(Control::Hybla),
        "the holder's registration serves"
    );
    let (mut sender, mut receiver) = connection().expect("loopback works");

    holder.kill().expect("it runs");
    holder.wait().expect("it was started");
    assert!(gone(), "a killed process leaves {NAME} behind");
    assert_carries(&mut sender, &mut receiver);

    loader
        .ensure(Control::Hybla)
        .expect("could be registered before");
    assert!(loader.holds(Control::Hybla));
    drop(loader);
    assert!(gone());
}

fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    SockRef::from(&sender).set_tcp_congestion(NAME.as_bytes())?;
    Ok((sender, listener.accept()?.0))
}

fn assert_carries(sender: &mut TcpStream, receiver: &mut TcpStream) {
    let control = SockRef::from(&*sender)
        .tcp_congestion()
        .expect("a TCP socket");
    assert!(control.starts_with(NAME.as_bytes()));
    sender.write_all(&[7; 5000]).expect("still connected");
    let mut bytes = [0; 5000];
    receiver.read_exact(&mut bytes).expect("still connected");
    assert_eq!(bytes, [7; 5000]);
}

#[test]
fn without_privileges_the_error_says_which_are_needed() {
    if Loader::new().ensure(Control::Dama).is_err() {
        skipped::because("nothing can be learnt about privileges here");
        return;
    }
    let error = thread::spawn(|| {
        // The system call changes only this thread's credentials; the C library would change all
        // threads'.
        // SAFETY: setresuid takes three integers and touches no memory.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        assert_eq!(result, 0);
        Loader::new().ensure(Control::Dama)
    })
    .join()
    .expect("no panic");
    assert!(
        matches!(
            error,
            Err(LoadError::NotPermitted(_) | LoadError::Unusable { .. })
        ),
        "{error:?}"
    );
    let text = error.expect_err("checked above").to_string();
    assert!(text.contains("CAP_NET_ADMIN"), "{text}");
}
