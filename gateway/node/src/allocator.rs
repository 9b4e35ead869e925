//! What glibc's allocator is told; others give free memory back by themselves.

/// Lets all threads allocate from one arena; to be called before the first
/// thread. What one thread allocates and another frees leaves holes in every
/// arena, so one takes less memory, and at a terminal few threads wait for it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn save_memory() {
    // SAFETY: mallopt(3) sets a number; there is one thread.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Returns the memory of payloads that are on the disk by now to the system. They
/// leave holes between those that stay, and glibc keeps these by itself.
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
