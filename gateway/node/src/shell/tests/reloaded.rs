//! A new configuration is applied by all shards or by none.

use super::*;

#[test]
fn another_configuration_moves_hops_in_their_shards() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let mut config = hub(&[&terminals[..], &[20, 21, 22]].concat());
        // The second terminal is removed.
        config.hops.remove(1);
        shell.reconfigure(&config).expect("hops may come and go");
        let listed: Vec<u64> = shell.hops().iter().map(|hop| hop.neighbour).collect();
        let expected: Vec<u64> = config.hops.iter().map(|hop| hop.neighbour).collect();
        assert_eq!(listed, expected);
        for hop in &config.hops {
            assert_eq!(shell.hop_named(&hop.name), Some(hop.id));
            let name = shell.read_hop(hop.id, |engine| engine.hop_name(hop.id).is_some());
            assert!(name, "{}", hop.name);
        }
        assert_eq!(shell.hop_named("terminal-11"), None);
        let (_, refused) = session(&shell, 1, 11);
        assert!(matches!(refused.take()[..], [Told::Abort]));
        let (id, taken) = session(&shell, 2, 21);
        assert!(taken.take().is_empty());
        let own = shard_of(&shell, 21);
        assert!(shell.lock(own).engine.session_place(id).is_some());
    }
}

#[test]
fn what_one_shard_refuses_changes_none() {
    let terminals = terminals();
    let config = hub(&terminals);
    let mut other = config.clone();
    let class = other.scheduler.classes.last_mut().expect("classes");
    class.priority += 1;
    // Only the last shard has other priorities.
    let [mut engines, others] = [&config, &other].map(|config| {
        let engines = Engine::of_shards(Instant::now(), config, in_memory(3));
        engines.expect("a valid configuration")
    });
    engines.truncate(2);
    engines.extend(others.into_iter().last());
    let (sender, _inbound) = mpsc::unbounded_channel();
    let shell = Shell::new(engines, &config, sender);
    let (id, recorded) = session(&shell, 1, terminals[1]);
    let mut wanted = hub(&[&terminals[..], &[20, 21, 22]].concat());
    wanted.hops.remove(1);
    shell.reconfigure(&wanted).expect_err("of other classes");
    let listed: Vec<u64> = shell.hops().iter().map(|hop| hop.neighbour).collect();
    assert_eq!(listed, terminals);
    assert_eq!(shell.hop_named("terminal-20"), None);
    assert!(
        shell
            .hop_named(&format!("terminal-{}", terminals[1]))
            .is_some()
    );
    let own = shard_of(&shell, terminals[1]);
    assert!(shell.lock(own).engine.session_place(id).is_some());
    assert!(recorded.take().is_empty(), "its session goes on");
}
