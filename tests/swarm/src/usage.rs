//! Memory and processor time of a process.

use std::fs;
use std::io;

/// What a process has used.
#[derive(Debug)]
pub struct Usage {
    /// Memory that is its own, bytes.
    pub memory_bytes: u64,
    /// Processor time, s.
    pub cpu_s: f64,
}

impl Usage {
    /// Of a process on this machine, until now.
    ///
    /// # Errors
    /// When there is none of this id.
    pub fn of(pid: u32) -> io::Result<Usage> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let bad = || io::Error::other(format!("/proc/{pid} is not as expected"));
        let memory = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = memory.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        // The name before may have any character, the parenthesis too.
        let fields = stat
            .rsplit_once(") ")
            .map(|(_, rest)| rest.split_whitespace());
        // utime and stime are fields 14 and 15 (proc(5)); the first here is 3.
        let ticks: Option<f64> = fields.map(|fields| {
            let times = fields.skip(11).take(2);
            times.filter_map(|text| text.parse::<f64>().ok()).sum()
        });
        let per_s = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
            .map_err(io::Error::from)?
            .ok_or_else(bad)?;
        Ok(Usage {
            memory_bytes: kib.ok_or_else(bad)? * 1024,
            cpu_s: ticks.ok_or_else(bad)? / per_s as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        let usage = Usage::of(std::process::id()).expect("this process");
        assert!(usage.memory_bytes > 0);
    }
}
