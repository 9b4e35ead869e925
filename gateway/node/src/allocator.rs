//! Settings of glibc's allocator. Other allocators return free memory by themselves.

/// Lets all threads allocate from one arena. Must be called before the first thread starts. Memory
/// that one thread allocates and another frees leaves holes in every arena, so a single arena takes
/// less memory. At a terminal few threads wait for it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn save_memory() {
    // SAFETY: mallopt(3) sets a number; there is one thread.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Returns the memory of payloads that are now on disk to the system. They leave holes between the
/// payloads that stay, which glibc would otherwise keep.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn trim() {
    // SAFETY: malloc_trim(3) may be called by any thread at any time; it takes
    // the allocator's own locks.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators are left as they are.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn save_memory() {}

/// Other allocators return free memory to the system.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn trim() {}
