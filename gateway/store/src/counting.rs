//! What is looked at, counted: tests prove by it that work is bounded.

#[cfg(feature = "simulation")]
thread_local! {
    static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// So many entries, or bytes where bytes are checked, are looked at.
pub fn count(number: usize) {
    #[cfg(feature = "simulation")]
    COUNT.set(COUNT.get() + number as u64);
    #[cfg(not(feature = "simulation"))]
    let _ = number;
}

/// What this thread has counted since it was asked last.
#[cfg(feature = "simulation")]
pub fn counted() -> u64 {
    COUNT.take()
}
