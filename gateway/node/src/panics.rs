//! A panic ends the process.
//!
//! A panic is a defect that has left some state half changed, perhaps under a lock that every
//! stream shares. To continue would mean to forward bytes according to that state. The next process
//! starts from the bundles in custody, which do not depend on this process's memory.

use std::panic::PanicHookInfo;

/// From now on a panic of any thread is logged, and ends the process at once
/// by SIGABRT. No destructor runs.
pub fn end_the_process() {
    std::panic::set_hook(Box::new(|info| {
        log(info);
        std::process::abort();
    }));
}

/// A panic in here ends the process at once too.
fn log(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let what = text.unwrap_or("of an unknown kind");
    let at = info.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    tracing::error!(
        at,
        thread,
        backtrace = %std::backtrace::Backtrace::capture(),
        "panic: {what}; this is a defect, please report it. The process ends; \
         custody goes on in the next"
    );
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::Mutex;

    use crate::config::LogConfig;

    /// Set in the process that is to panic.
    const PANICS: &str = "UNDERPASS_TEST_PANICS";

    #[test]
    fn panic_of_any_thread_is_logged_and_ends_the_process() {
        if std::env::var_os(PANICS).is_some() {
            panic_in_a_thread();
            return;
        }
        let this = std::env::current_exe().unwrap();
        let name = "panics::tests::panic_of_any_thread_is_logged_and_ends_the_process";
        let run = Command::new(this)
            .args(["--exact", name, "--nocapture"])
            .env(PANICS, "1")
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.signal(), Some(libc::SIGABRT), "{log}");
        assert!(log.contains("panic: half changed"), "{log}");
        assert!(log.contains("panics.rs"), "{log}");
        assert!(!log.contains("still there"), "{log}");
    }

    /// Panics like a worker of the runtime, while holding a lock that others need.
    fn panic_in_a_thread() {
        crate::logging::start(&LogConfig::default()).unwrap();
        super::end_the_process();
        let shared = Mutex::new(());
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _held = shared.lock();
                panic!("half changed");
            });
            let _ = worker.join();
            tracing::error!("another thread is still there");
        });
    }
}
