//! How a connection ends, as Linux sockets see it.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

use super::*;

fn pair() -> (ModelSocket, ModelSocket) {
    let wire = Wire {
        delays: [Duration::from_millis(1); 2],
        send_buffer: 64 << 10,
        receive_buffers: [64 << 10; 2],
        blockages: Arc::new([]),
    };
    connect(wire, &Census::default())
}

async fn read(socket: &mut ModelSocket) -> Result<usize, ErrorKind> {
    let mut buffer = [0; 4096];
    let read = socket.read(&mut buffer).await;
    read.map_err(|error| error.kind())
}

async fn write(socket: &mut ModelSocket) -> Result<(), ErrorKind> {
    let written = socket.write_all(b"x").await;
    sleep(Duration::from_millis(20)).await;
    written.map_err(|error| error.kind())
}

async fn pause() {
    sleep(Duration::from_millis(50)).await;
}

fn abort(socket: ModelSocket) {
    socket.end_by_reset();
}

const RESET: ErrorKind = ErrorKind::ConnectionReset;
const PIPE: ErrorKind = ErrorKind::BrokenPipe;

#[tokio::test(start_paused = true)]
async fn a_reader_has_what_came_before_a_reset_and_then_the_reset_once() {
    let (mut a, mut b) = pair();
    a.write_all(&[7; 1000]).await.unwrap();
    abort(a);
    pause().await;
    assert_eq!(read(&mut b).await, Ok(1000));
    assert_eq!(read(&mut b).await, Err(RESET));
    assert_eq!(read(&mut b).await, Ok(0));
    assert_eq!(write(&mut b).await, Err(PIPE));
    let shut = b.shutdown().await.map_err(|error| error.kind());
    assert_eq!(shut, Err(ErrorKind::NotConnected));
}

#[tokio::test(start_paused = true)]
async fn a_writer_hears_of_a_reset_before_the_reader_does() {
    let (mut a, mut b) = pair();
    a.write_all(&[7; 1000]).await.unwrap();
    abort(a);
    pause().await;
    assert_eq!(write(&mut b).await, Err(RESET));
    assert_eq!(write(&mut b).await, Err(PIPE));
    assert_eq!(read(&mut b).await, Ok(1000));
    assert_eq!(read(&mut b).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_received_outlives_a_reset() {
    let (mut a, mut b) = pair();
    a.write_all(&[7; 1000]).await.unwrap();
    a.shutdown().await.unwrap();
    pause().await;
    abort(a);
    pause().await;
    assert_eq!(read(&mut b).await, Ok(1000));
    assert_eq!(read(&mut b).await, Ok(0));
    assert_eq!(write(&mut b).await, Err(PIPE));
}

#[tokio::test(start_paused = true)]
async fn a_close_with_bytes_unread_is_a_reset() {
    let (mut a, mut b) = pair();
    assert_eq!(write(&mut b).await, Ok(()));
    a.write_all(&[7; 1000]).await.unwrap();
    drop(a);
    pause().await;
    assert_eq!(read(&mut b).await, Ok(1000));
    assert_eq!(read(&mut b).await, Err(RESET));
}

#[tokio::test(start_paused = true)]
async fn bytes_for_a_closed_end_are_answered_with_a_reset() {
    let (mut a, mut b) = pair();
    a.write_all(&[7; 1000]).await.unwrap();
    drop(a);
    pause().await;
    assert_eq!(write(&mut b).await, Ok(()));
    assert_eq!(write(&mut b).await, Err(PIPE));
    assert_eq!(read(&mut b).await, Ok(1000));
    assert_eq!(read(&mut b).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_full_window_stops_the_writer_until_the_reader_reads() {
    let census = Census::default();
    let wire = Wire {
        delays: [Duration::from_millis(5); 2],
        send_buffer: 3000,
        receive_buffers: [5000; 2],
        blockages: Arc::new([]),
    };
    let (mut a, mut b) = connect(wire, &census);
    let writer = tokio::spawn(async move {
        a.write_all(&[7; 100_000]).await.unwrap();
        drop(a);
    });
    pause().await;
    assert_eq!(b.line.lock()[1].unread, 5000, "the window");
    assert!(!writer.is_finished());
    let mut all = vec![0; 100_000];
    b.read_exact(&mut all).await.unwrap();
    assert_eq!(read(&mut b).await, Ok(0));
    assert_eq!(census.alive(), 1);
    drop(b);
    pause().await;
    assert_eq!(census.alive(), 0);
}
