//! Work that begins in the order in which it came.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

use tokio::task::JoinSet;

/// Does what the future does before it first waits, and the rest in a task: tasks begin in any
/// order. A client that opens connections one after the other may rely on their order at the
/// origin, as `iperf3 --bidir` does. A panic ends the future only, as in a task.
pub async fn begin(work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    let begun =
        poll_fn(|cx| Poll::Ready(catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)))));
    if let Ok(Poll::Pending) = begun.await {
        tokio::spawn(work);
    }
}

/// As [`begin`], in a set of tasks.
pub(crate) async fn begin_in<T: Send + 'static>(
    tasks: &mut JoinSet<T>,
    work: impl Future<Output = T> + Send + 'static,
) {
    let mut work = Box::pin(work);
    match poll_once(work.as_mut()).await {
        Poll::Ready(done) => tasks.spawn(async move { done }),
        Poll::Pending => tasks.spawn(work),
    };
}

async fn poll_once<F: Future + ?Sized>(mut work: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_comes_first_begins_first() {
        let begun = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for number in 0..100 {
            let (noted, nested) = (begun.clone(), begun.clone());
            let first = async move {
                noted.lock().unwrap().push(number);
                tokio::task::yield_now().await;
            };
            begin(first).await;
            begin_in(
                &mut tasks,
                async move { nested.lock().unwrap().push(number) },
            )
            .await;
        }
        assert_eq!(tasks.join_all().await.len(), 100);
        let twice: Vec<i32> = (0..100).flat_map(|number| [number, number]).collect();
        assert_eq!(*begun.lock().unwrap(), twice);
    }

    #[tokio::test]
    async fn a_panic_ends_one_alone() {
        begin(async { panic!("expected by this test") }).await;
        begin(async {}).await;
    }
}
