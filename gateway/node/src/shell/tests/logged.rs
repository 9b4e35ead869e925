//! What the log says of links.

use super::*;

use tracing::Level;

use crate::logging::Excerpt;

#[test]
fn only_a_blockage_that_nobody_has_arranged_is_a_warning() {
    let excerpt = Arc::new(Excerpt::default());
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(Level::INFO)
        .with_writer(excerpt.clone());
    tracing::subscriber::with_default(subscriber.finish(), || {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), 1);
        let name = format!("terminal-{}", terminals[0]);
        let hop = shell.hop_named(&name).expect("it is configured");
        for blocked in [true, false] {
            shell.with_hop(hop, |engine, now| engine.block(now, hop, blocked));
        }
        shell.modem_says(&name, true);
    });
    let lines = excerpt.from(0).lines.into_iter();
    let blocked: Vec<String> = lines.filter(|line| line.contains("link blocked")).collect();
    let [arranged, found] = &blocked[..] else {
        panic!("{blocked:?}");
    };
    assert!(
        arranged.contains(" INFO ") && arranged.contains("operator"),
        "{arranged}"
    );
    assert!(
        found.contains(" WARN ") && found.contains("modem"),
        "{found}"
    );
}
