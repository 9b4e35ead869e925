//! Which congestion control a path uses: the first of its preference list that works.

use std::fmt;
use std::fs;

use crate::control::{Control, usable};
use crate::loader::Loader;

/// A preferred control that is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name for `TCP_CONGESTION`.
    pub name: String,
    /// Why, for an operator to read.
    pub reason: String,
}

/// The outcome of a preference list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The name for `TCP_CONGESTION`; `None` if nothing of the list is available, so that sockets
    /// keep the kernel's default.
    pub name: Option<String>,
    /// What was preferred to it, in order.
    pub refused: Vec<Refused>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or("kernel default"))?;
        for Refused { name, reason } in &self.refused {
            write!(f, "; not {name}: {reason}")?;
            if let Some(control) = Control::from_name(name) {
                write!(f, " (without it {})", control.cost())?;
            }
        }
        Ok(())
    }
}

impl Loader {
    /// Takes the first of `preference` that a socket accepts, registering our own on the way.
    pub fn choose<S: AsRef<str>>(&mut self, preference: &[S]) -> Choice {
        let mut refused = Vec::new();
        for name in preference.iter().map(AsRef::as_ref) {
            match self.try_name(name) {
                Ok(()) => {
                    return Choice {
                        name: Some(name.to_owned()),
                        refused,
                    };
                }
                Err(reason) => refused.push(Refused {
                    name: name.to_owned(),
                    reason,
                }),
            }
        }
        Choice {
            name: None,
            refused,
        }
    }

    fn try_name(&mut self, name: &str) -> Result<(), String> {
        match Control::from_name(name) {
            Some(control) => self.ensure(control).map_err(|error| error.to_string()),
            None => usable(name).map_err(|error| error.to_string()),
        }
    }
}

/// The congestion controls that are registered with the kernel now, ours included.
pub fn available() -> Vec<String> {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map(|names| names.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_it_costs() {
        let refused = |name: &str| Refused {
            name: name.to_owned(),
            reason: "no rights".to_owned(),
        };
        let choice = Choice {
            name: Some("bbr".to_owned()),
            refused: vec![refused("hybla_dama"), refused("vegas")],
        };
        assert_eq!(
            choice.to_string(),
            "bbr; not hybla_dama: no rights (without it each loss slows sending down, though \
             the link has its rate all the same); not vegas: no rights"
        );
    }
}
