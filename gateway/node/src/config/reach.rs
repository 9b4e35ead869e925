//! Checks which classes can be sent to which neighbours on any path.

use std::collections::BTreeSet;

use underpass_engine::MeteredUse;

use super::{ClassSettings, Config, PathDirection};

/// Neighbours that are named in one line.
const NAMED: usize = 5;

impl Config {
    /// Bundles that no path may carry would wait silently. The first class has to reach every
    /// neighbour, since it carries custody signals; other classes may be meant for some neighbours
    /// only.
    pub(super) fn check_reach(&self, problems: &mut Vec<String>) {
        let all = self.neighbours();
        let sent_to = self.reached(|_| true, |_| true);
        for neighbour in all.difference(&sent_to) {
            problems.push(format!(
                "neighbour {neighbour}: all paths have direction = \"receive\", so nothing can be sent \
                 there: leave it out of one"
            ));
        }
        for (place, class) in self.classes.iter().enumerate() {
            let reached = self.reached_by(class);
            let name = &class.name;
            if reached.is_empty() && !sent_to.is_empty() {
                problems.push(format!(
                    "class {name:?}: its paths only receive, or are metered and metered = \"never\", so \
                     nothing of it can be sent"
                ));
            } else if place == 0 {
                for neighbour in sent_to.difference(&reached) {
                    problems.push(format!(
                        "class {name:?}: none of its paths may carry it to neighbour {neighbour}, and \
                         custody is released by it"
                    ));
                }
            }
        }
    }

    /// A line for each class that does not reach all neighbours.
    pub fn unreached(&self) -> Vec<String> {
        let all = self.neighbours();
        let of_class = |class: &ClassSettings| {
            let reached = self.reached_by(class);
            let mut unreached = all.difference(&reached).map(u64::to_string);
            let first: Vec<String> = unreached.by_ref().take(NAMED).collect();
            if first.is_empty() {
                return None;
            }
            let more = match unreached.count() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Some(format!(
                "class {:?}: none of its paths may carry it to neighbour {}{more}: what is sent there waits",
                class.name,
                first.join(", "),
            ))
        };
        self.classes.iter().filter_map(of_class).collect()
    }

    /// The neighbours to which a class may be sent on a path of its policy.
    fn reached_by(&self, class: &ClassSettings) -> BTreeSet<u64> {
        let named =
            |name: &str| class.paths.is_empty() || class.paths.iter().any(|own| own == name);
        let pays = |metered: bool| !metered || class.metered != MeteredUse::Never;
        self.reached(named, pays)
    }

    /// The neighbours that something may be sent to by a path or listener of such a name,
    /// and whose bytes are paid for or not.
    fn reached(&self, named: impl Fn(&str) -> bool, pays: impl Fn(bool) -> bool) -> BTreeSet<u64> {
        let may = |direction: PathDirection, metered: bool| {
            direction == PathDirection::Both && pays(metered)
        };
        let dialled = self
            .paths
            .iter()
            .filter(|path| named(&path.name) && may(path.direction, path.meter.is_some()));
        let accepted = self.accepted_hops().filter(|hop| {
            let listeners = self.listeners.iter().map(|listener| &listener.name);
            let mut ways = listeners.filter(|name| hop.comes_by(name));
            // Having none is reported separately.
            let comes = self.listeners.is_empty() || ways.any(|name| named(name));
            comes && may(hop.direction, hop.meter.is_some())
        });
        let dialled = dialled.map(|path| path.neighbour);
        dialled.chain(accepted.map(|hop| hop.node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A hub that sends nothing to one terminal by LTE; `more` configures the other.
    fn hub(more: &str) -> Result<Config, String> {
        let text = format!(
            "[node]\nnumber = 1\nrole = \"hub\"\n[tls]\nplain = true\n\
             [[listener]]\nname = \"beam\"\nlisten = \"10.9.0.1:4556\"\n\
             [[listener]]\nname = \"lte\"\nlisten = \"10.9.0.1:4566\"\n\
             [[terminal]]\nnode = 11\n[[terminal.path]]\nlistener = \"lte\"\n\
             direction = \"receive\"\n[[terminal]]\nnode = 12\n{more}"
        );
        Config::parse(&text, Path::new("node.toml")).map_err(|error| error.to_string())
    }

    fn classes(signalling: &str, bulk: &str) -> String {
        format!(
            "[[terminal.path]]\nlistener = \"lte\"\n\
             [[class]]\nname = \"signalling\"\npriority = 0\n{signalling}\n\
             [[class]]\nname = \"normal\"\npriority = 1\n\
             [[class]]\nname = \"bulk\"\npriority = 2\n{bulk}\n"
        )
    }

    #[test]
    fn a_class_that_no_path_may_carry_is_refused() {
        let metered = "[terminal.path.meter]\n";
        let receives = "direction = \"receive\"\n";
        let bulk = "policy = \"pinned\"\npaths = [\"lte\"]\nmetered = \"never\"";
        for of_lte in [metered, receives] {
            let text = classes("", bulk).replacen("[[class]]", &format!("{of_lte}[[class]]"), 1);
            let refused = hub(&text).expect_err("nothing carries it");
            assert!(
                refused.contains("class \"bulk\": its paths only receive"),
                "{refused}"
            );
            let text = text.replace(bulk, "");
            assert_eq!(
                hub(&text).expect("by the beam").unreached(),
                [] as [&str; 0]
            );
        }
    }

    #[test]
    fn signalling_has_to_reach_every_neighbour_and_others_some() {
        let by_lte = "paths = [\"lte\"]";
        let refused = hub(&classes(by_lte, "")).expect_err("nothing goes to terminal 11 so");
        let told = "class \"signalling\": none of its paths may carry it to neighbour 11";
        assert!(refused.contains(told), "{refused}");
        let some = hub(&classes("", by_lte)).expect("terminal 12 has it so");
        let told = "class \"bulk\": none of its paths may carry it to neighbour 11: what is sent \
                    there waits";
        assert_eq!(some.unreached(), [told]);
    }

    #[test]
    fn a_neighbour_of_which_all_paths_only_receive_is_refused() {
        let refused = hub("direction = \"receive\"\n").expect_err("nothing is sent to it");
        assert!(
            refused.contains("neighbour 12: all paths have direction"),
            "{refused}"
        );
        assert!(!refused.contains("class"), "{refused}");
    }
}
