//! Certificates for HTTPS: the control service's and the nodes' APIs. A client
//! that trusts the authority needs no other one for them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use rcgen::{KeyPair, SanType};
use time::OffsetDateTime;

use crate::authority::Authority;
use crate::certificate;
use crate::error::PkiError;
use crate::files::{self, CA_CERTIFICATE, Readers};
use crate::serial::Serial;

const SERVERS: &str = "servers";
/// The certificate with the authority's behind it.
const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";

impl Authority {
    /// Makes a key and a certificate for a server that is reached by `names`,
    /// DNS names and IP addresses. Returns the folder with both.
    pub fn issue_server(
        &mut self,
        names: &[String],
        days: u64,
        now: SystemTime,
    ) -> Result<PathBuf, PkiError> {
        let alternatives = names.iter().map(|name| alternative(name));
        let alternatives = alternatives.collect::<Result<Vec<_>, _>>()?;
        let name = names
            .first()
            .ok_or_else(|| PkiError::ServerName(String::new()))?;
        let not_after = certificate::end(now, days)?.min(self.not_after);
        if not_after <= OffsetDateTime::from(now) {
            return Err(PkiError::AuthorityEnded);
        }
        let params = certificate::server(name, alternatives, &Serial::random()?, now, not_after);
        let pair = KeyPair::generate()?;
        let own = params.signed_by(&pair, &self.issuer)?.pem();
        let chain = own + &self.public_file(CA_CERTIFICATE)?;
        let dir = self.dir.join(SERVERS).join(name);
        files::make_dir(&dir)?;
        files::write(&dir, KEY, &pair.serialize_pem(), Readers::Owner)?;
        files::write(&dir, CHAIN, &chain, Readers::Everybody)?;
        Ok(dir)
    }
}

fn alternative(name: &str) -> Result<SanType, PkiError> {
    let wrong = || PkiError::ServerName(name.to_owned());
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        return Err(wrong());
    }
    Ok(SanType::DnsName(name.try_into().map_err(|_| wrong())?))
}
