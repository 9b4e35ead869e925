//! TLS of the local API, from files that are read again when they change.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::server::ApiError;
use crate::config::ApiConfig;

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// Certificate and key, as they were last read.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
}

/// Shows whether a file has changed; none if the file does not exist.
type Mark = Option<(u64, u64, i64, i64)>;

impl Tls {
    /// Reads the files that the configuration names; none if it names none.
    ///
    /// # Errors
    /// When a file is missing or malformed, the key is readable by everybody,
    /// or they do not belong together.
    pub fn load(config: &ApiConfig) -> Result<Option<Arc<Tls>>, ApiError> {
        let Some((certificate, key)) = config.tls_files() else {
            return Ok(None);
        };
        let current = RwLock::new(read(&certificate, &key)?);
        Ok(Some(Arc::new(Tls {
            certificate,
            key,
            current,
        })))
    }

    /// What new connections are served with.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.read().unwrap().clone()
    }

    /// Reads the files again whenever they have changed. Runs until dropped.
    pub async fn watch(self: Arc<Tls>) {
        let mut known = self.marks();
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.look(&mut known);
        }
    }

    fn marks(&self) -> [Mark; 2] {
        [mark(&self.certificate), mark(&self.key)]
    }

    fn look(&self, known: &mut [Mark; 2]) {
        let found = self.marks();
        if found == *known {
            return;
        }
        match read(&self.certificate, &self.key) {
            Ok(config) => {
                *self.current.write().unwrap() = config;
                *known = found;
                tracing::info!("certificate of the local API read again");
            }
            // During a renewal key and certificate may not match for a moment.
            Err(error) => tracing::warn!(%error, "certificate not read again yet"),
        }
    }
}

fn mark(path: &Path) -> Mark {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, ApiError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |reason: String| ApiError::Tls { path, reason }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(certificate)(error.to_string()))?;
    if chain.is_empty() {
        return Err(failed(certificate)("it holds no certificate".to_owned()));
    }
    is_private(key).map_err(|error| failed(key)(error.to_string()))?;
    let own = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key)(error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, own));
    let mut config = config.map_err(|error| failed(certificate)(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn is_private(key: &Path) -> io::Result<()> {
    if std::fs::metadata(key)?.mode() & 0o007 != 0 {
        let text = "everybody can use it: chmod o= makes it private";
        return Err(io::Error::other(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(folder: &Path) -> rcgen::CertifiedKey<rcgen::KeyPair> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(folder.join("api.crt"), made.cert.pem()).unwrap();
        fs::write(folder.join("api.key"), made.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(folder.join("api.key"), Permissions::from_mode(0o600)).unwrap();
        made
    }

    fn config(folder: &Path) -> ApiConfig {
        ApiConfig {
            certificate_file: Some(folder.join("api.crt")),
            key_file: Some(folder.join("api.key")),
            ..ApiConfig::default()
        }
    }

    fn refused(folder: &Path) -> String {
        let refused = Tls::load(&config(folder)).map(|tls| tls.is_some());
        refused.unwrap_err().to_string()
    }

    #[test]
    fn a_key_that_everybody_can_read_or_of_another_certificate_is_refused() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (one.path(), other.path());
        assert!(refused(one).contains("api.crt"));
        write(one);
        write(other);
        assert!(Tls::load(&config(one)).unwrap().is_some());
        fs::set_permissions(one.join("api.key"), Permissions::from_mode(0o604)).unwrap();
        assert!(refused(one).contains("everybody can use it"));
        fs::set_permissions(one.join("api.key"), Permissions::from_mode(0o640)).unwrap();
        fs::copy(other.join("api.crt"), one.join("api.crt")).unwrap();
        assert!(refused(one).contains("api.crt"));
        fs::write(one.join("api.crt"), "").unwrap();
        assert!(refused(one).contains("no certificate"));
    }

    #[test]
    fn a_renewed_certificate_is_taken_once_its_key_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(folder);
        let tls = Tls::load(&config(folder)).unwrap().unwrap();
        let (first, mut known) = (tls.current(), tls.marks());
        tls.look(&mut known);
        assert!(Arc::ptr_eq(&first, &tls.current()));
        let key = fs::read(folder.join("api.key")).unwrap();
        write(folder);
        let renewed = fs::read(folder.join("api.key")).unwrap();
        fs::write(folder.join("api.key"), key).unwrap();
        tls.look(&mut known);
        assert!(Arc::ptr_eq(&first, &tls.current()));
        fs::write(folder.join("api.key"), renewed).unwrap();
        tls.look(&mut known);
        assert!(!Arc::ptr_eq(&first, &tls.current()));
    }
}
