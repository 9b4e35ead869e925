//! Open files: each taken-in connection is one, and so is each dialled one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Fewer than these end a busy gateway early.
const FEW: u64 = 65_536;

/// Raises the limit of open files to what the system allows this process, and returns it. The soft
/// limit is usually 1,024, for programs that use select(2).
///
/// # Errors
/// When the system does not show or change the limit.
pub(super) fn raise_limit() -> nix::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

/// Raises the limit, and logs a warning if it stays low.
pub(super) fn prepare() {
    match raise_limit() {
        Ok(limit) if limit < FEW => tracing::warn!(
            limit,
            "few open files are allowed (LimitNOFILE in systemd): they bound the connections"
        ),
        Ok(limit) => tracing::debug!(limit, "open files"),
        Err(error) => tracing::warn!(%error, "the limit of open files stays as it is"),
    }
}

/// Files that this process may have open.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(FEW, |(soft, _)| soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limit = raise_limit().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (limit, limit));
    }
}
