//! The classes of a link: strict priorities, weights among equals.

use thiserror::Error;
use underpass_cla::Class;

/// The most classes a link may have: as many as a leaf's bit set holds.
const MOST_CLASSES: usize = 64;

/// How one class is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// The class.
    pub class: Class,
    /// Strict: a lower number goes first.
    pub priority: u8,
    /// Share of bytes among classes of the same priority, at least 1.
    pub weight: u32,
}

/// What is wrong with a set of classes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ClassError {
    #[error("{0} classes; at most {MOST_CLASSES} are possible")]
    TooMany(usize),
    #[error("class {0} is configured twice")]
    Twice(Class),
    #[error("class {0} has weight 0; give it at least 1")]
    NoWeight(Class),
    #[error(
        "class 0, signalling, must be there, with a priority number below that of every other class"
    )]
    Signalling,
}

/// Classes in the order of service, and their priorities as ranks from 0.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    ordered: Vec<ClassConfig>,
    /// For each place in `ordered`, its priority level and its number therein.
    levels: Vec<(usize, usize)>,
}

impl Classes {
    pub fn new(configs: &[ClassConfig]) -> Result<Self, ClassError> {
        if configs.len() > MOST_CLASSES {
            return Err(ClassError::TooMany(configs.len()));
        }
        let mut ordered = configs.to_vec();
        ordered.sort_by_key(|config| (config.priority, config.class));
        for (place, config) in ordered.iter().enumerate() {
            if config.weight == 0 {
                return Err(ClassError::NoWeight(config.class));
            }
            if ordered[..place]
                .iter()
                .any(|other| other.class == config.class)
            {
                return Err(ClassError::Twice(config.class));
            }
        }
        let alone = ordered.len() < 2 || ordered[0].priority < ordered[1].priority;
        if !alone
            || ordered
                .first()
                .is_none_or(|first| first.class != Class::SIGNALLING)
        {
            return Err(ClassError::Signalling);
        }
        let mut levels: Vec<(usize, usize)> = Vec::with_capacity(ordered.len());
        for (place, config) in ordered.iter().enumerate() {
            let level = match levels.last() {
                Some(&(level, member)) if ordered[place - 1].priority == config.priority => {
                    (level, member + 1)
                }
                Some(&(level, _)) => (level + 1, 0),
                None => (0, 0),
            };
            levels.push(level);
        }
        Ok(Classes { ordered, levels })
    }

    /// Whether the classes and their priority levels are the same; weights may
    /// differ.
    pub fn is_ordered_as(&self, other: &Classes) -> bool {
        let order = |classes: &Classes| -> Vec<Class> {
            let ordered = classes.ordered.iter();
            ordered.map(|config| config.class).collect()
        };
        self.levels == other.levels && order(self) == order(other)
    }

    /// The place of `class` in the order of service.
    pub fn place(&self, class: Class) -> Option<usize> {
        self.ordered.iter().position(|config| config.class == class)
    }

    /// Each class: its priority level, its number in that level, its weight.
    pub fn members(&self) -> impl Iterator<Item = (usize, usize, u32)> + '_ {
        let weights = self.ordered.iter().map(|config| config.weight);
        self.levels
            .iter()
            .zip(weights)
            .map(|(&(level, member), weight)| (level, member, weight))
    }

    /// How many priority levels there are.
    pub fn levels(&self) -> usize {
        self.levels.last().map_or(0, |&(level, _)| level + 1)
    }

    pub fn level(&self, place: usize) -> (usize, usize) {
        self.levels[place]
    }

    pub fn at(&self, level: usize, member: usize) -> Class {
        let first = self.levels.partition_point(|&(other, _)| other < level);
        self.ordered[first + member].class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(class: u8, priority: u8, weight: u32) -> ClassConfig {
        ClassConfig {
            class: Class(class),
            priority,
            weight,
        }
    }

    #[test]
    fn signalling_must_be_there_and_above_all() {
        for configs in [
            vec![],
            vec![class(1, 1, 1)],
            vec![class(0, 1, 1), class(1, 1, 1)],
            vec![class(0, 2, 1), class(1, 1, 1)],
        ] {
            assert_eq!(Classes::new(&configs).unwrap_err(), ClassError::Signalling);
        }
        assert!(Classes::new(&[class(0, 9, 1)]).is_ok());
    }

    #[test]
    fn contradictions_are_named() {
        let twice = [class(0, 0, 1), class(3, 1, 1), class(3, 2, 1)];
        assert_eq!(
            Classes::new(&twice).unwrap_err(),
            ClassError::Twice(Class(3))
        );
        let none = [class(0, 0, 1), class(3, 1, 0)];
        assert_eq!(
            Classes::new(&none).unwrap_err(),
            ClassError::NoWeight(Class(3))
        );
        let many: Vec<_> = (0..65).map(|number| class(number, number, 1)).collect();
        assert_eq!(Classes::new(&many).unwrap_err(), ClassError::TooMany(65));
    }

    #[test]
    fn levels_and_members_lead_back_to_their_class() {
        let configs = [
            class(4, 2, 1),
            class(0, 0, 1),
            class(2, 1, 5),
            class(1, 2, 7),
        ];
        let classes = Classes::new(&configs).unwrap();
        for config in configs {
            let (level, member) = classes.level(classes.place(config.class).unwrap());
            assert_eq!(classes.at(level, member), config.class);
        }
        assert_eq!(classes.level(classes.place(Class(4)).unwrap()), (2, 1));
        assert_eq!(classes.levels(), 3);
    }
}
