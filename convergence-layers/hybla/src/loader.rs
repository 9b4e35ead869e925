//! Registers the BPF controls with the kernel, for as long as the process lives.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Once;

use libbpf_rs::{ErrorKind, Link, MapCore, MapMut, ObjectBuilder, PrintLevel, set_print};

use crate::control::{Control, UnusableError, usable};

/// Compiled from `src/bpf/hybla.bpf.c` by the build script.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hybla.bpf.o"));

/// The kernel's description of its own types, which CO-RE needs for relocation.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Why a control could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel was built without CONFIG_DEBUG_INFO_BTF, or /sys is not mounted.
    #[error("the kernel does not describe its types: {KERNEL_TYPES} is absent")]
    NoKernelTypes,
    /// The process may not load BPF programs.
    #[error("loading needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (or root): {0}")]
    NotPermitted(libbpf_rs::Error),
    /// The kernel does not take the program; it needs Linux 6.4 or later.
    #[error("the kernel does not take the program (Linux 6.4 or later is needed): {0}")]
    Rejected(libbpf_rs::Error),
    /// Registered, yet a socket may not use it.
    #[error("{} is registered but cannot be used: {source}", control.name())]
    Unusable {
        /// Which one.
        control: Control,
        /// What the kernel said.
        source: UnusableError,
    },
}

/// Keeps the controls registered that it has registered itself.
///
/// The name of a control is unique on a kernel, across all network namespaces. If another process
/// has registered it already, that registration is used. It ends with the other process, so
/// [`Loader::ensure`] must be called before each new connection; it costs one socket when there is
/// nothing to do.
#[derive(Debug, Default)]
pub struct Loader {
    links: BTreeMap<Control, Link>,
}

impl Loader {
    /// Registers nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the control usable by `TCP_CONGESTION`, if it is not so already.
    pub fn ensure(&mut self, control: Control) -> Result<(), LoadError> {
        match usable(control.name()) {
            Ok(()) => return Ok(()),
            Err(UnusableError::Absent) => {}
            Err(source) => return Err(LoadError::Unusable { control, source }),
        }
        match register(control) {
            Ok(link) => {
                self.links.insert(control, link);
            }
            // Another process was faster; its registration serves as well.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(classify(error)),
        }
        usable(control.name()).map_err(|source| LoadError::Unusable { control, source })
    }

    /// Whether the registration is this loader's own.
    pub fn holds(&self, control: Control) -> bool {
        self.links.contains_key(&control)
    }
}

fn register(control: Control) -> libbpf_rs::Result<Link> {
    log_through_tracing();
    let mut open = ObjectBuilder::default()
        .name("underpass")?
        .open_memory(PROGRAM)?;
    for mut map in open.maps_mut() {
        let other = Control::ALL
            .iter()
            .any(|known| *known != control && map.name() == known.name());
        if other {
            map.set_autocreate(false)?;
        }
    }
    let mut object = open.load()?;
    let mut map: MapMut = object
        .maps_mut()
        .find(|map| map.name() == control.name())
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    map.attach_struct_ops()
}

fn classify(error: libbpf_rs::Error) -> LoadError {
    if error.kind() == ErrorKind::PermissionDenied {
        LoadError::NotPermitted(error)
    } else if !Path::new(KERNEL_TYPES).exists() {
        LoadError::NoKernelTypes
    } else {
        LoadError::Rejected(error)
    }
}

/// libbpf would otherwise write the verifier's log to standard error.
fn log_through_tracing() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Debug, |level, text| {
            let text = text.trim_end();
            match level {
                PrintLevel::Warn => tracing::warn!(target: "libbpf", "{text}"),
                PrintLevel::Info => tracing::info!(target: "libbpf", "{text}"),
                PrintLevel::Debug => tracing::trace!(target: "libbpf", "{text}"),
            }
        })));
    });
}

#[cfg(test)]
mod tests {
    use super::PROGRAM;

    #[test]
    fn the_object_does_not_say_in_which_folder_it_was_compiled() {
        let folder = env!("CARGO_MANIFEST_DIR").as_bytes();
        assert!(!PROGRAM.windows(folder.len()).any(|part| part == folder));
    }
}
