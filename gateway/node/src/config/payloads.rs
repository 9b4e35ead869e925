//! Payloads that are too long for memory.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use underpass_bundle::largest_bundle_bytes;
use underpass_bundle::wire::MAX_HEADER_BYTES;
use underpass_payloads::Limits;

use super::Config;
use super::bounds::{MOST_BYTES, check_within};

/// Longer bundles are written to disk, bytes.
const MOST_IN_MEMORY: u64 = 16 << 20;

/// `[payloads]`: payloads that are too long for memory are files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PayloadsConfig {
    /// Bytes of all of them on disk; 0 for none at all. Default 32 GiB.
    pub quota_bytes: u64,
    /// The largest one, bytes. Default 16 GiB.
    pub max_payload_bytes: u64,
}

impl Default for PayloadsConfig {
    fn default() -> Self {
        PayloadsConfig {
            quota_bytes: 32 << 30,
            max_payload_bytes: 16 << 30,
        }
    }
}

impl PayloadsConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let (quota, most) = (self.quota_bytes, self.max_payload_bytes);
        if quota > 0 && !(MOST_IN_MEMORY..=quota).contains(&most) {
            problems.push(format!(
                "payloads.max_payload_bytes = {most}: must be {MOST_IN_MEMORY} to \
                 payloads.quota_bytes, {quota}"
            ));
        }
        check_within("payloads.quota_bytes", quota, 0..=MOST_BYTES, problems);
    }

    pub fn folder(&self, state_dir: &Path) -> PathBuf {
        state_dir.join("payloads")
    }
}

impl Config {
    /// The limits of payloads on disk; none if none may be there.
    pub fn long_payloads(&self) -> Option<Limits> {
        let PayloadsConfig {
            quota_bytes,
            max_payload_bytes,
        } = self.payloads;
        (quota_bytes > 0).then_some(Limits {
            quota_bytes,
            payload_bytes: max_payload_bytes,
            // A full disk stalls custody, and with it all streams.
            leave_free_bytes: match self.custody.is_durable() && self.custody.dir.is_none() {
                true => self.custody.most_file_bytes(),
                false => 0,
            },
        })
    }

    /// The largest bundle that is taken into memory, bytes. It has room for each neighbour, however
    /// little of the store is not guaranteed to the others.
    pub fn whole_mru_bytes(&self) -> u64 {
        let custody = &self.custody;
        let storable = largest_bundle_bytes(custody.quota_bytes, custody.guaranteed_percent);
        storable.min(custody.quota_bytes / 4)
    }

    /// Bundles that announce more bytes are written to disk, if any are.
    pub fn long_above_bytes(&self) -> u64 {
        self.whole_mru_bytes().min(MOST_IN_MEMORY)
    }

    /// The largest bundle that comes into memory at present, bytes.
    pub fn in_memory_bytes(&self) -> u64 {
        match self.long_payloads() {
            Some(_) => self.long_above_bytes(),
            None => self.whole_mru_bytes(),
        }
    }

    /// Payloads that are longer go to the disk, too, where they come in fragments,
    /// bytes: the payload of each bundle that goes there is longer.
    pub fn long_payload_above_bytes(&self) -> u64 {
        let beside = 2 * MAX_HEADER_BYTES as u64;
        self.long_above_bytes().saturating_sub(beside)
    }

    /// The largest bundle that is taken, bytes.
    pub fn transfer_mru_bytes(&self) -> u64 {
        let store = self.whole_mru_bytes();
        let beside = 2 * MAX_HEADER_BYTES as u64;
        let long = self.long_payloads();
        long.map_or(store, |limits| store.max(limits.payload_bytes + beside))
    }

    /// The largest bundle that is taken if its length is unknown before all of it has come, bytes:
    /// it then needs its room on disk twice, and must leave as much to others.
    pub fn spooled_mru_bytes(&self) -> u64 {
        let most = self
            .long_payloads()
            .map_or(self.whole_mru_bytes(), |limits| {
                self.long_above_bytes().max(limits.quota_bytes / 3)
            });
        most.min(self.transfer_mru_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::relay_with;

    fn config(quota_bytes: u64, payloads: &str) -> Config {
        let custody = format!("[custody]\nquota_bytes = {quota_bytes}");
        relay_with(&format!("{custody}\n[payloads]\n{payloads}"))
    }

    #[test]
    fn what_comes_into_memory_is_longer_where_nothing_goes_to_the_disk() {
        let in_memory_bytes = |quota_bytes: u64, payloads: u64| {
            config(quota_bytes, &format!("quota_bytes = {payloads}")).in_memory_bytes()
        };
        assert_eq!(in_memory_bytes(1 << 30, 32 << 30), 16 << 20);
        assert_eq!(in_memory_bytes(1 << 30, 0), 256 << 20);
        assert_eq!(in_memory_bytes(40 << 20, 32 << 30), 10 << 20);
    }

    #[test]
    fn what_comes_into_memory_has_room_where_all_of_the_store_is_guaranteed() {
        const QUOTA: u64 = 4 << 20;
        let whole_mru_bytes = |percent: u8| {
            let custody = format!("quota_bytes = {QUOTA}\nguaranteed_percent = {percent}");
            relay_with(&format!("[custody]\n{custody}")).whole_mru_bytes()
        };
        for percent in [0, 50, 87] {
            assert_eq!(whole_mru_bytes(percent), QUOTA / 4, "{percent} %");
        }
        assert_eq!(whole_mru_bytes(100), QUOTA / 8 - 1_024);
    }

    #[test]
    fn what_waits_on_the_disk_until_it_is_whole_has_a_third_of_the_folder() {
        let spooled_mru_bytes = |payloads: &str| config(1 << 30, payloads).spooled_mru_bytes();
        assert_eq!(spooled_mru_bytes("quota_bytes = 32_212_254_720"), 10 << 30);
        // Without a folder the limit is what fits in memory, which is allowed in any
        // case.
        assert_eq!(spooled_mru_bytes("quota_bytes = 0"), 256 << 20);
        let small = "quota_bytes = 16_777_216\nmax_payload_bytes = 16_777_216";
        assert_eq!(spooled_mru_bytes(small), 16 << 20);
    }

    #[test]
    fn a_payload_fits_into_the_quota_and_is_longer_than_memory_takes() {
        let problems = |quota_bytes, max_payload_bytes| {
            let mut problems = Vec::new();
            let payloads = PayloadsConfig {
                quota_bytes,
                max_payload_bytes,
            };
            payloads.check(&mut problems);
            problems.len()
        };
        let usual = PayloadsConfig::default();
        assert_eq!(problems(usual.quota_bytes, usual.max_payload_bytes), 0);
        assert_eq!(problems(0, usual.max_payload_bytes), 0);
        assert_eq!(problems(1 << 30, (1 << 30) + 1), 1);
        assert_eq!(problems(1 << 30, 1 << 20), 1);
        assert_eq!(problems(u64::MAX, 1 << 30), 1);
    }
}
