//! Traffic classes.

use std::fmt;

/// A traffic class: its number in the node's configuration, which both ends
/// of a hop share. Class 0 is signalling, the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(pub u8);

impl Class {
    /// Custody signals, position reports, plans: always the highest class.
    pub const SIGNALLING: Class = Class(0);
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
