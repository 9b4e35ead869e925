//! `underpass check-config`: reports all problems of a configuration and of the files that it
//! names.

use std::error::Error;
use std::path::Path;

use crate::config::{Config, ConfigError, Document};
use crate::enrolment::Renewal;
use crate::known_time::KnownTime;
use crate::security::Security;
use crate::{api, bpsec, run};

/// Prints that a configuration is valid, with remarks on it.
///
/// # Errors
/// With a line for each problem.
pub fn execute(path: &Path) -> Result<(), ConfigError> {
    let (config, mut problems) = Config::examine(&Document::read(path)?)?;
    for problem in of_files(&config) {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    if !problems.is_empty() {
        let path = path.to_owned();
        return Err(ConfigError::Invalid { path, problems });
    }
    for line in run::advice(&config) {
        println!("{line}");
    }
    println!("{}: valid", path.display());
    Ok(())
}

/// What is wrong with the files that a configuration names, whether or not it
/// is valid itself.
fn of_files(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    let time = KnownTime::load(Some(&config.node.state_dir));
    if let Err(error) = Security::load(&config.tls, config.node.number, &time) {
        problems.push(told(&error));
    }
    if let Err(error) = Renewal::of(config, &time) {
        problems.push(format!("enrolment: {}", told(&error)));
    }
    problems.extend(bpsec::problems(&config.bpsec).iter().map(|e| told(e)));
    if let Err(error) = api::check(&config.api) {
        problems.push(told(&error));
    }
    if let Err(error) = underpass_edge::Edge::check_users(&config.edge) {
        problems.push(told(&error));
    }
    if let Some(Err(error)) = config.control.as_ref().map(run::control::service) {
        problems.push(told(&error));
    }
    if let Err(error) = run::reports::Prover::of(config) {
        problems.push(told(&error));
    }
    problems
}

/// An error with its causes; a cause that the error's text quotes is not repeated.
fn told(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let because = cause.to_string();
        if !text.contains(&because) {
            text.push_str(": ");
            text.push_str(&because);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_files_are_told_beside_each_other_and_beside_what_the_text_has() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("plan.ionrc"), "a contact +0 +10 1 2\n").unwrap();
        std::fs::write(at("short.key"), "abcd\n").unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(at("short.key"), private).unwrap();
        let text = format!(
            "[node]\nnumber = 7\nrole = \"relay\"\nstate_dir = {state:?}\n\
             [routing]\ncontact_plan = {plan:?}\nbundle_bytes = 0\n\
             [api]\nsocket = {socket:?}\n\
             [bpsec]\nkeys_dir = {keys:?}\n\
             [[bpsec.rule]]\nsource = \"ipn:5\"\n\
             integrity_keys = [\"short\", \"gone\"]\n",
            state = at("state"),
            plan = at("plan.ionrc"),
            socket = at("api.sock"),
            keys = folder.path(),
        );
        let path = at("node.toml");
        std::fs::write(&path, text).unwrap();
        let told = execute(&path).unwrap_err().to_string();
        for part in [
            "routing.bundle_bytes must be",
            "plan.ionrc: line 1",
            "source = \"ipn:5\": must be",
            "short.key: must have 32 to 128",
            "gone.key: No such file",
        ] {
            assert!(told.contains(part), "{part} is missing in {told}");
        }
    }
}
